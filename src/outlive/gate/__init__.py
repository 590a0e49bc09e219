"""The gate before every irreversible verb: claims come in, a decision goes out.

Pure. Nothing here opens a file, a connection or a clock: evidence and the time are arguments, so
the same claims always give the same decision and the whole truth table can be tested. The order
in a verb is ``decide`` (show it) -> ``waiver.parse`` and ``approval.mint`` (a person, at a
terminal) -> ``decide`` again with both -> the platform's verb -> ``receipt.build``.
"""

from outlive.gate.approval import Approval, Ok, Refusal, Request
from outlive.gate.claims import (
    BoxClaims,
    Costs,
    DangerClock,
    ForeignProcess,
    RunClaims,
    SafePlace,
    Tier,
    Unclaimed,
    UnclaimedFile,
)
from outlive.gate.clauses import Clause
from outlive.gate.decide import Decision, decide
from outlive.gate.items import Item
from outlive.gate.receipt import Receipt
from outlive.gate.waiver import Waiver

__all__ = [
    "Approval",
    "BoxClaims",
    "Clause",
    "Costs",
    "DangerClock",
    "Decision",
    "ForeignProcess",
    "Item",
    "Ok",
    "Receipt",
    "Refusal",
    "Request",
    "RunClaims",
    "SafePlace",
    "Tier",
    "Unclaimed",
    "UnclaimedFile",
    "Waiver",
    "decide",
]
