"""The client's memory: an append-only, fsynced record of what was intended, allowed, copied and paid.

One file per state directory; its path is always an argument. The box is the truth about runs, the
ledger the truth about intents, approvals and receipts. Everything else here is a fold of it and may
be deleted.
"""

from outlive.ledger.cache import load
from outlive.ledger.names import new_name, resolve
from outlive.ledger.record import KINDS, Ledger
from outlive.ledger.secret import SecretInLedger, Secrets
from outlive.ledger.spend import use_approval
from outlive.ledger.state import Box, Intent, LedgerState, Run, fold

__all__ = [
    "KINDS",
    "Box",
    "Intent",
    "Ledger",
    "LedgerState",
    "Run",
    "SecretInLedger",
    "Secrets",
    "fold",
    "load",
    "new_name",
    "resolve",
    "use_approval",
]
