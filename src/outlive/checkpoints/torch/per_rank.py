"""What differs from process to process of one training: random numbers and the place in the data."""

from typing import Any, Dict, List, Optional, Tuple

from outlive.checkpoints.torch import rng, state
from outlive.checkpoints.torch.ranks import Ranks
from outlive.checkpoints.torch.snapshot import map_tensors


def gather(parts: Dict[str, Any], ranks: Ranks) -> Optional[List[Any]]:
    """Return every rank's share on rank 0, None elsewhere. All ranks call it together."""
    mine: Dict[str, Any] = {"rng": rng.capture()}
    if parts.get("loader") is not None:
        mine["loader"] = state.capture({"loader": parts["loader"]}, with_rng=False)["loader"]
    return ranks.gather(map_tensors(mine, lambda _where, tensor: tensor.clone()))


def mine(saved: Dict[str, Any], ranks: Ranks) -> Tuple[Dict[str, Any], List[str]]:
    """Return the saved state with this rank's share in it, and what should be said about that.

    With another number of processes the random numbers begin anew, and the place in the data is where as many
    samples were used: batch k of all ranks together is the same stretch of the order for every number of ranks.
    """
    shares = saved.get("ranks") or [{k: saved[k] for k in ("rng", "loader") if k in saved}]
    if len(shares) == ranks.world:
        return dict(saved, **shares[ranks.rank]), []
    found = {k: v for k, v in saved.items() if k != "rng"}
    said = ["saved by %d processes, resumed by %d: random numbers begin anew" % (len(shares), ranks.world)]
    place = shares[0].get("loader")
    if isinstance(place, dict) and place.get("batch_size"):
        # for a loader with another batch size this is another number of batches; it reckons that itself
        samples = place["position"] * place["batch_size"] * len(shares) // ranks.world
        found["loader"] = dict(place, samples=samples)
        said.append("each goes on after %d samples of its epoch" % samples)
    elif place is not None:
        found["loader"] = place
        said.append("every process goes on at rank 0's place in the data")
    return found, said
