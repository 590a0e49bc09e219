"""A training that stops anywhere and goes on ends as if it had never stopped."""

import pytest
import torch

from outlive.checkpoints.torch import ConfigChanged, Locked, Mismatch, NoGoodCheckpoint, load


@pytest.mark.parametrize("options", [{}, {"asynchronous": False}, {"overlap": False}], ids=["default", "sync", "eager"])
def test_a_resumed_training_ends_as_an_undisturbed_one(training, same, tmp_path, options):
    whole = training(tmp_path / "whole", **options).run(17).end()
    expected = whole.state()
    training(tmp_path / "cut", **options).run(11, every=4).end()  # step 8 is the newest: in the second epoch
    again = training(tmp_path / "cut", **options).run(17).end()
    assert any("resumed from" in line and "(step 8)" in line for line in again.said)
    found = again.state()
    assert [k for k in expected if not same(expected[k], found[k])] == []


def test_plain_torch_and_safetensors_read_what_was_saved(training, same, tmp_path):
    import safetensors.torch

    one = training(tmp_path).run(5).end()
    (path,) = tmp_path.glob("step-*")
    weights = safetensors.torch.load_file(path / "model.safetensors")
    assert same(dict(sorted(weights.items())), dict(sorted(one.model.state_dict().items())))
    state = torch.load(path / "state.pt", weights_only=True)
    assert state["step"] == 5 and state["scheduler"]["last_epoch"] == 5
    assert same(state["optimizer"]["state"][0]["exp_avg"], one.optimizer.state_dict()["state"][0]["exp_avg"])
    whole = load(str(path))
    assert list(whole["model"]) == list(one.model.state_dict())
    from outlive.artifacts.structure import prove

    for name in ("state.pt", "model.safetensors"):
        proof = prove(str(path / name), "tensors")
        assert (proof.level, proof.findings) == ("tensors", ())


def test_a_second_process_is_refused(training, tmp_path):
    training(tmp_path)
    with pytest.raises(Locked):
        training(tmp_path)


def test_damaged_ones_are_set_aside_and_named_and_the_one_before_is_taken(training, tmp_path):
    training(tmp_path).run(10).end()
    newest = sorted(tmp_path.glob("step-*"))[-1] / "state.pt"
    raw = bytearray(newest.read_bytes())
    raw[len(raw) // 2] ^= 1
    newest.write_bytes(bytes(raw))
    again = training(tmp_path)
    assert again.ckpt.resume() == 5
    assert any("step-000000010" in line and "set aside" in line for line in again.said)


def test_beginning_anew_is_only_done_on_purpose(training, tmp_path):
    training(tmp_path).run(10).end()
    for file in tmp_path.glob("step-*/model.safetensors"):
        file.write_bytes(b"")
    again = training(tmp_path)
    with pytest.raises(NoGoodCheckpoint) as caught:
        again.ckpt.resume()
    assert {bad.name for bad in caught.value.bad} == {"step-000000005", "step-000000010"}
    assert again.ckpt.resume(allow_restart=True) == 0


def test_another_model_is_shown_as_a_table_and_nothing_is_changed(training, same, tmp_path):
    training(tmp_path).run(5).end()
    other = training(tmp_path)
    other.ckpt._engine.parts["model"] = wider = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.BatchNorm1d(32))
    before = {k: v.clone() for k, v in wider.state_dict().items()}
    optimizer = other.optimizer.state_dict()
    with pytest.raises(Mismatch) as caught:
        other.ckpt.resume()
    rows = {row[0]: row[1:] for row in caught.value.rows}
    assert rows["model.0.weight"] == ("float32 [16, 4]", "float32 [32, 4]")
    assert rows["model.3.bias"] == ("float32 [1]", "-")
    assert same(before, dict(wider.state_dict())) and optimizer == other.optimizer.state_dict()


def test_a_part_that_was_not_saved_is_a_difference_unless_it_is_allowed(training, tmp_path):
    first = training(tmp_path)
    first.ckpt._engine.parts["ema"] = None
    first.run(5).end()
    again = training(tmp_path)
    with pytest.raises(Mismatch, match="ema"):
        again.ckpt.resume()
    assert again.ckpt.resume(allow_changed=["ema"]) == 5


def test_a_changed_config_is_named_and_refused(training, tmp_path):
    training(tmp_path, config={"lr": 0.05, "data": {"seed": 1}}).run(5).end()
    again = training(tmp_path, config={"lr": 0.05, "data": {"seed": 2}})
    with pytest.raises(ConfigChanged, match="data.seed: 1, now 2"):
        again.ckpt.resume()
    assert again.ckpt.resume(allow_changed=["data.seed"]) == 5


def test_what_goes_wrong_in_the_writer_is_raised_at_the_next_call(training, tmp_path, monkeypatch):
    one = training(tmp_path)
    one.ckpt.resume()

    def fail(*_args, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(one.ckpt._store, "publish", fail)
    one.ckpt.save(1)
    with pytest.raises(OSError, match="No space"):
        one.ckpt.save(2)
    monkeypatch.undo()
    one.ckpt.save(3, wait=True)
    assert [p.name for p in tmp_path.glob("step-*")] == ["step-000000003"]


def test_a_change_behind_the_optimizers_back_never_reaches_the_disk(tmp_path):
    from outlive.checkpoints.torch import Checkpointer

    model = torch.nn.Linear(512, 512)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    said = []
    with Checkpointer(str(tmp_path), model=model, optimizer=optimizer, signals=(), say=said.append) as ckpt:
        ckpt.resume()
        pending = ckpt._engine.take({"step": 1}, True)
        assert [one.where for one in pending.snapshot.later] == ["model.weight"]
        model.weight.data.mul_(2)  # no version counter sees this
        ckpt._write(pending, {"step": 1}, 0.0)
        assert not list(tmp_path.glob("step-*")) and "model.weight was changed" in said[0]
        assert ckpt.maybe_save(2) == "torn"
    saved = load(str(tmp_path / "step-000000002"))
    assert torch.equal(saved["model"]["weight"], model.weight)


def test_the_optimizer_waits_for_the_copy(tmp_path):
    from outlive.checkpoints.torch import Checkpointer

    model = torch.nn.Linear(512, 512)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Checkpointer(str(tmp_path), model=model, optimizer=optimizer, signals=()) as ckpt:
        ckpt.resume()
        for step in range(1, 6):
            model(torch.ones(1, 512)).sum().backward()
            optimizer.step()
            expected = model.weight.detach().clone()
            ckpt.save(step)
            optimizer.step()
            ckpt.wait()
            assert torch.equal(load(str(tmp_path / ("step-%09d" % step)))["model"]["weight"], expected)


def test_above_the_cap_it_saves_before_it_returns_and_says_so(tmp_path):
    from outlive.checkpoints.torch import Checkpointer

    said = []
    model = torch.nn.Linear(64, 64)
    with Checkpointer(str(tmp_path), model=model, staging_bytes=1000, signals=(), say=said.append) as ckpt:
        ckpt.resume()
        ckpt.save(1)
        assert [p.name for p in tmp_path.glob("step-*")] == ["step-000000001"]
        assert ckpt.staging_bytes == 0 and any("saves are synchronous" in line for line in said)


def test_tied_weights_are_stored_once_and_come_back_tied(tmp_path):
    from outlive.checkpoints.torch import Checkpointer

    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(50, 8)
            self.head = torch.nn.Linear(8, 50, bias=False)
            self.head.weight = self.table.weight

    model = Tied()
    with Checkpointer(str(tmp_path), model=model, signals=()) as ckpt:
        ckpt.save(1)
    assert (tmp_path / "step-000000001" / "model.safetensors").stat().st_size < 50 * 8 * 4 + 400
    other = Tied()
    with Checkpointer(str(tmp_path), model=other, signals=()) as ckpt:
        assert ckpt.resume() == 1
    assert torch.equal(other.head.weight, model.head.weight) and other.head.weight is other.table.weight


def test_a_signal_is_one_flush_at_the_next_step(tmp_path, monkeypatch):
    import os
    import signal

    from outlive.checkpoints.torch import Checkpointer

    came = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    try:
        said = []
        with Checkpointer(str(tmp_path), model=torch.nn.Linear(2, 2), every_steps=1000, say=said.append) as ckpt:
            ckpt.resume()
            assert ckpt.maybe_save(1) == ""
            os.kill(os.getpid(), signal.SIGUSR1)
            assert ckpt.maybe_save(2) == "SIGUSR1" and ckpt.maybe_save(3) == ""
            os.kill(os.getpid(), signal.SIGTERM)
            assert ckpt.maybe_save(4) == "SIGTERM" and came == [signal.SIGTERM]  # the program's own handler is called
            monkeypatch.setenv("OUTLIVE_GRACE_S", "0.000001")
            os.kill(os.getpid(), signal.SIGTERM)
            assert ckpt.maybe_save(5) == "" and "grace is over" in said[-1]
        assert sorted(p.name for p in tmp_path.glob("step-*")) == ["step-000000002", "step-000000004"]
        assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_copy_at_the_durable_place_is_enough_to_go_on(training, same, tmp_path):
    import shutil

    first = training(tmp_path / "box", durable=str(tmp_path / "volume")).run(10).end()
    expected = first.state()
    shutil.rmtree(tmp_path / "box")
    again = training(tmp_path / "new box", durable=str(tmp_path / "volume"))
    assert again.ckpt.resume() == 10
    assert same(again.state(), expected)


def test_a_durable_place_that_is_not_mounted_is_no_reason_to_begin_anew(training, tmp_path):
    (tmp_path / "volume").mkdir()
    one = training(tmp_path / "box", durable=str(tmp_path / "volume" / "ckpt"), mount=str(tmp_path / "volume"))
    with pytest.raises(NoGoodCheckpoint, match="volume"):
        one.ckpt.resume()
