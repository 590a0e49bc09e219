"""Folders and files as other programs leave them. Those made by the programs themselves are tested beside torch."""

import io
import json
import os
import pickle
import zipfile

import pytest

from outlive.checkpoints import safetensors_format as st
from outlive.checkpoints.errors import CheckpointError, NewerFormat, UnknownFormat
from outlive.checkpoints.foreign import children, owned, recognise, verify_path
from outlive.checkpoints.store import Store


def torch_file(path, content):
    """A zip as torch.save writes it, without tensors."""
    with zipfile.ZipFile(str(path), "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(content, 2))
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/version", "3\n")


def weights(path, value=b"\0" * 8):
    st.write(str(path), {"w": ("F32", (2,), value)})


def test_plain_torch_files(tmp_path):
    torch_file(tmp_path / "model_step_1200.pt", {"a": 1})
    found = recognise(str(tmp_path / "model_step_1200.pt"))
    assert (found.kind, found.step) == ("torch", 1200)
    assert verify_path(found.path).ok
    os.truncate(found.path, 60)
    assert verify_path(found.path).ok is False


def test_a_torch_file_that_is_only_zeros(tmp_path):
    path = tmp_path / "last.pth"
    path.write_bytes(b"\0" * 500)
    assert recognise(str(path)).kind == "torch"
    assert verify_path(str(path)).ok is False


def test_lightning_says_its_name_inside(tmp_path):
    path = tmp_path / "epoch=1-step=300-val_loss=0.25.ckpt"
    torch_file(path, {"pytorch-lightning_version": "2.5", "global_step": 300})
    found = recognise(str(path))
    assert (found.kind, found.step, found.metrics) == ("lightning", 300, {"val_loss": 0.25})


def hugging_face(folder, step):
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    weights(folder / "model.safetensors")
    state = {"global_step": step, "log_history": [{"step": 1, "loss": 9.0}, {"step": step, "eval_loss": 0.5}]}
    (folder / "trainer_state.json").write_text(json.dumps(state))


def test_hugging_face_folders(tmp_path):
    for step in (500, 1000):
        hugging_face(tmp_path / ("checkpoint-%d" % step), step)
    found = recognise(str(tmp_path / "checkpoint-500"))
    assert (found.kind, found.step, found.metrics) == ("hf-trainer", 500, {"eval_loss": 0.5})
    assert [one.step for one in children(str(tmp_path))] == [500, 1000]
    assert verify_path(found.path).ok
    (tmp_path / "checkpoint-500" / "trainer_state.json").unlink()
    assert recognise(found.path).kind == "hf-model"
    os.truncate(str(tmp_path / "checkpoint-500" / "model.safetensors"), 20)
    assert verify_path(found.path).ok is False


def test_a_sharded_model_lacks_a_shard(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    weights(folder / "model-00001-of-00002.safetensors")
    table = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(table))
    verdict = verify_path(str(folder))
    assert verdict.ok is False and "00002-of-00002.safetensors is missing" in verdict.why
    weights(folder / "model-00002-of-00002.safetensors")
    assert verify_path(str(folder)).ok


def test_distributed_checkpoints(tmp_path):
    folder = tmp_path / "step_40"
    folder.mkdir()
    (folder / ".metadata").write_bytes(pickle.dumps({"shards": ["__0_0.distcp", "__1_0.distcp"]}, 2))
    torch_file(folder / "__0_0.distcp", {})
    found = recognise(str(folder))
    assert (found.kind, found.step) == ("dcp", 40)
    assert "__1_0.distcp is missing" in verify_path(str(folder)).why
    torch_file(folder / "__1_0.distcp", {})
    assert verify_path(str(folder)).ok
    (folder / ".metadata").write_bytes(b"\x80\x02}q\x00(")
    assert verify_path(str(folder)).ok is not None


def test_deepspeed_folders(tmp_path):
    inner = tmp_path / "global_step70"
    inner.mkdir()
    torch_file(inner / "mp_rank_00_model_states.pt", {})
    (tmp_path / "latest").write_text("global_step70")
    assert (recognise(str(tmp_path)).kind, recognise(str(tmp_path)).step) == ("deepspeed", 70)
    assert recognise(str(inner)).step == 70
    assert verify_path(str(tmp_path)).ok
    (tmp_path / "latest").write_text("global_step80")
    assert "global_step80 is missing" in verify_path(str(tmp_path)).why


def test_safetensors_alone(tmp_path):
    weights(tmp_path / "model.safetensors", b"\xff\xff\xff\x7f" * 2)
    assert recognise(str(tmp_path / "model.safetensors")).kind == "safetensors"
    assert verify_path(str(tmp_path / "model.safetensors")).ok
    assert verify_path(str(tmp_path / "model.safetensors"), "tensors").ok is False


def test_our_own(tmp_path):
    with Store(str(tmp_path / "ckpt")) as store:
        writing = store.begin(5)
        writing.add_bytes("a", b"1")
        saved = store.publish(writing, metrics={"loss": 1.0})
    assert owned(str(tmp_path / "ckpt")) and not owned(str(tmp_path))
    found = recognise(saved.path)
    assert (found.kind, found.step, found.metrics) == ("outlive", 5, {"loss": 1.0})
    assert verify_path(saved.path, "bytes").ok
    path = os.path.join(saved.path, "checkpoint.json")
    with open(path) as handle:
        data = json.load(handle)
    with open(path, "w") as handle:
        json.dump(dict(data, version=9), handle)
    with pytest.raises(NewerFormat):
        recognise(saved.path)


@pytest.mark.parametrize("name, content", [("notes.txt", b"hello"), ("x.png", b"\x89PNG\r\n\x1a\n"), ("empty", b"")])
def test_what_is_no_checkpoint(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UnknownFormat):
        recognise(str(tmp_path / name))
    with pytest.raises(UnknownFormat):
        recognise(str(tmp_path))


def test_what_cannot_be_read(tmp_path):
    with pytest.raises(CheckpointError):
        recognise(str(tmp_path / "missing"))


def test_a_lightning_mark_in_garbage_confuses_nobody(tmp_path):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.pkl", b"pytorch-lightning_version")
    path = tmp_path / "x.ckpt"
    path.write_bytes(out.getvalue()[:-30])
    assert recognise(str(path)).kind in ("torch", "lightning")
    assert verify_path(str(path)).ok is False
