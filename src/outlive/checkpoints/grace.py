"""The seconds between a platform's signal and its kill, and whether a save fits into them. Pure."""

from typing import Mapping, NamedTuple, Optional

from outlive.checkpoints.cadence import positive_number

GRACE_ENV = "OUTLIVE_GRACE_S"

ASSUMED_GRACE_S = 25.0
"""Where nobody knows: the shortest warning of the large clouds is 30 s, and some of it is gone when it arrives."""

MARGIN_SHARE = 1.3
"""A save beside a dying machine's other work takes longer than it did."""

MARGIN_S = 1.0


class Decision(NamedTuple):
    """Whether to begin a flush after a signal."""

    save: bool
    why: str
    left_s: float


def grace_from_env(environ: Mapping[str, str]) -> Optional[float]:
    """Return the platform's grace as the supervisor says it; None when it says nothing."""
    return positive_number(environ.get(GRACE_ENV))


def flush_decision(grace_s: Optional[float], save_s: Optional[float], since_signal_s: float = 0.0) -> Decision:
    """Decide whether one more save can be whole before the kill.

    ``save_s`` is a whole save until it is committed, as measured (not the stall of the training thread); None when none
    was made yet. Trying costs nothing but the grace: a save that is cut short leaves the previous one. So it is only
    left out when it certainly does not fit.
    """
    left_s = (grace_s if grace_s is not None else ASSUMED_GRACE_S) - since_signal_s
    if left_s <= 0:
        return Decision(False, "the grace is over", left_s)
    if save_s is None:
        return Decision(True, "no save was measured yet; one is tried in the %.0f s left" % left_s, left_s)
    if save_s > left_s:
        why = "a save takes %.1f s and %.1f s are left: the newest committed one stands" % (save_s, left_s)
        return Decision(False, why, left_s)
    if save_s * MARGIN_SHARE + MARGIN_S > left_s:
        return Decision(True, "it may just fit: %.1f s of %.1f s" % (save_s, left_s), left_s)
    return Decision(True, "it fits: %.1f s of %.1f s" % (save_s, left_s), left_s)
