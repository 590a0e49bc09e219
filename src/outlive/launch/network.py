"""The environment of the work: ours, the network's, the user's. What was not read is not set."""

from __future__ import annotations

from outlive.launch.description import Launch
from outlive.launch.files import File, Rendering
from outlive.launch.fill import fill
from outlive.launch.shell import exports


def environment(launch: Launch, *, restarts: bool = False) -> list[tuple[str, str]]:
    """Return what every process of the launch gets, in the order of reasons; the user's own words win.

    ``restarts``: the launcher starts the work again by itself. Then the work must not meet in a store that
    outlived the last start: it still holds the addresses of processes that are gone, and the new ones wait for them.
    """
    pairs = [("OMP_NUM_THREADS", "1"), ("PYTHONUNBUFFERED", "1"), ("OUTLIVE_GRACE_S", str(launch.grace_s))]
    if launch.mtbf_s is not None:
        pairs.append(("OUTLIVE_MTBF_S", f"{launch.mtbf_s:g}"))
    # torchrun passes the signal on and waits this long before it kills; its default is 30 s
    pairs.append(("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(launch.grace_s)))
    if restarts:
        pairs.append(("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"))
    pairs += network(launch)
    own = dict(launch.env)
    return [(name, own.pop(name, value)) for name, value in pairs] + list(own.items())


def network(launch: Launch) -> list[tuple[str, str]]:
    """Return the variables of NCCL and gloo that follow from readings."""
    fabric = launch.fabric
    pairs = []
    if fabric.interface is not None:
        pairs.append(("GLOO_SOCKET_IFNAME", fabric.interface))
    if launch.device == "cpu":
        return pairs
    if fabric.interface is not None:
        # "=": this interface, not every one whose name begins like it
        pairs.append(("NCCL_SOCKET_IFNAME", f"={fabric.interface}"))
    if fabric.infiniband is not None:
        if fabric.infiniband:
            pairs.append(("NCCL_IB_HCA", "=" + ",".join(fabric.infiniband)))
        else:
            pairs.append(("NCCL_IB_DISABLE", "1"))
    if fabric.peer_to_peer is False:
        pairs.append(("NCCL_P2P_DISABLE", "1"))
    # a hang becomes an error with a stack of each rank, instead of silence
    pairs += [
        ("NCCL_DEBUG", "WARN"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        ("TORCH_NCCL_DUMP_ON_TIMEOUT", "1"),
        ("TORCH_FR_BUFFER_SIZE", "2000"),
    ]
    return pairs


def render_network(launch: Launch) -> Rendering:
    """``nccl``: the network's variables alone, to be read by a shell on every node."""
    fabric = launch.fabric
    readings = {
        "interface": fabric.interface,
        "InfiniBand": None if fabric.infiniband is None else ", ".join(fabric.infiniband) or "none",
        "GPU to GPU": None if fabric.peer_to_peer is None else "yes" if fabric.peer_to_peer else "no",
    }
    said = [f"# read: {name}: {value}" for name, value in readings.items() if value is not None]
    said += [f"# not read, so not set: {name}" for name, value in readings.items() if value is None]
    text = fill(
        "nccl.sh", header=launch.header(), readings="\n".join(said), variables=exports(network(launch)),
    )  # fmt: skip
    return Rendering(
        files=(File("nccl.sh", text, "variables of NCCL and gloo, the same on every node"),),
        next=(". ./nccl.sh",),
    )
