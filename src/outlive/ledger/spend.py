"""Using an approval: counted while nobody else can count, so that one use is one use."""

from outlive.errors import ApprovalInvalid
from outlive.ledger.record import Ledger
from outlive.ledger.state import fold


def use_approval(ledger: Ledger, id: str) -> None:
    """Record one use of an approval, before the verb it allows is carried out.

    Whether it holds is for ``gate.approval.check``. Raises ApprovalInvalid when it is not in the
    ledger or no use is left; of two clients that try at once, one gets this.
    """

    def use_left() -> bool:
        approval = fold(record for record, _ in ledger.records()).approval(id)
        return approval is not None and approval.uses_left > 0

    if ledger.append_if(use_left, "approval_used", id=id) is None:
        raise ApprovalInvalid(f"the approval {id} is not in the ledger, or was used already")
