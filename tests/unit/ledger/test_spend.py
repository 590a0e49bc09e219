import threading

import pytest

from outlive.errors import ApprovalInvalid
from outlive.gate import Approval
from outlive.ledger import Ledger, load, use_approval

APPROVAL = Approval("now", "a1", "destroy", "rented-1", "id", "i-1", ("r",), "d", 100.0, 1000.0)


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append("approval", **APPROVAL.to_wire())
    return ledger


def test_one_use_is_one_use(ledger):
    use_approval(ledger, "a1")
    assert load(ledger).approval("a1").uses_left == 0
    with pytest.raises(ApprovalInvalid) as refused:
        use_approval(ledger, "a1")
    assert refused.value.exit_code == 5


def test_an_approval_that_nobody_gave(ledger):
    with pytest.raises(ApprovalInvalid):
        use_approval(ledger, "a2")


def test_of_many_clients_one_gets_it(ledger):
    got = []
    together = threading.Barrier(8)

    def client():
        mine = Ledger(ledger.path)  # each opens the file itself, as processes do
        together.wait()
        try:
            use_approval(mine, "a1")
        except ApprovalInvalid:
            return
        got.append(1)

    threads = [threading.Thread(target=client) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [1]
