"""What the work may import: the same bytes each time, at the end of its PYTHONPATH, with nothing installed."""

import io
import os
import subprocess
import sys
import time
import uuid
import zipfile

import pytest

from outlive.onbox import boot
from outlive.transport import pack, pack_train
from outlive.transport.agent import Agent
from outlive.transport.local import LocalExec

LIMIT_BYTES = 250_000
SAVES = """
import json, sys
import outlive.checkpoints
from outlive.checkpoints.store import Store
with Store("ckpt") as store:
    writing = store.begin(3)
    writing.add_bytes("state.json", b"{}")
    store.publish(writing)
print(json.dumps({"file": outlive.checkpoints.__file__, "path": sys.path}))
"""


def names():
    return zipfile.ZipFile(io.BytesIO(pack_train.train_zip()[1])).namelist()


def test_packing_twice_gives_the_same_bytes_and_stays_small():
    first = pack_train.train_zip()
    pack_train.train_zip.cache_clear()
    assert pack_train.train_zip() == first
    assert len(first[1]) < LIMIT_BYTES


def test_it_holds_the_library_and_what_it_stands_on():
    packed = names()
    assert {n.split("/")[1] for n in packed if n.count("/") > 1} == set(pack_train.PACKAGES)
    for name in ("store", "cadence", "foreign", "torch/__init__"):
        assert f"outlive/checkpoints/{name}.py" in packed


def test_the_supervisor_names_it_and_carries_only_what_it_reads():
    archive = zipfile.ZipFile(io.BytesIO(pack.supervisor_pyz()[1]))
    assert pack_train.train_zip()[0] in archive.read(pack.TRAIN).decode()
    sources = next(boot.unpacked(archive.read(boot.BLOCK))).decode().split()[::2]
    carried = {n.rpartition("/")[2] for n in sources if n.startswith("outlive/checkpoints/")}
    assert carried == {f"{name}.py" for name in pack.CHECKPOINTS}


def test_every_module_of_the_core_is_imported_from_the_archive_alone(tmp_path):
    path = tmp_path / "train.zip"
    path.write_bytes(pack_train.train_zip()[1])
    modules = [n[:-3].replace("/", ".") for n in names() if n.startswith("outlive/checkpoints/") and "/torch/" not in n]
    code = "import importlib\nfor name in %r: importlib.import_module(name)\n" % [
        m.replace(".__init__", "") for m in modules
    ]
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(path)},
        cwd=tmp_path,
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()


@pytest.fixture
def agent(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    made = Agent(LocalExec(), str(root), sys.executable)
    yield made
    for _ in range(200):
        left = [int(n) for n in os.listdir("/proc") if n.isdigit() and int(n) != os.getpid() and _under(n, root)]
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass
        time.sleep(0.05)


def _under(name, root):
    try:
        with open(f"/proc/{name}/cmdline", "rb") as handle:
            return str(root).encode() in handle.read()
    except OSError:
        return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the box's cleanup here reads /proc")
def test_a_run_on_a_box_imports_it_with_nothing_installed(agent):
    box_id = agent.call("hello")["box_id"]
    # an installed outlive would be found as well: the work gets a bare environment and an interpreter without site
    recorded = {"environment": {"PATH": os.environ["PATH"], "PYTHONPATH": "/of/the/user"}, "defaults": {}}
    agent.call("record_box", {"box": recorded, "box_id": box_id})
    spec = {
        "job": "job",
        "python": sys.executable,
        "stages": [{"name": "main", "run": ["python", "-S", "-c", SAVES]}],
        "limits": {"scan_s": 0.5},
        "artifacts": {"checkpoints": "ckpt"},
    }
    request = {"token": uuid.uuid4().hex, "spec": spec, "payload": {}, "wait_s": 8.0, "box_id": box_id}
    run = agent.call("run_start", request)["run"]
    until = time.monotonic() + 120
    while True:
        answer = agent.call("run_manifest", {"run": run, "box_id": box_id})
        if answer["status"]["ended"]:
            break
        assert time.monotonic() < until, answer["status"]
        time.sleep(0.2)
    with open(f"{agent.root}/.outlive/runs/{run}/log") as handle:
        log = handle.read()
    archive = f"{agent.root}/.outlive/train-{pack_train.train_zip()[0]}.zip"
    assert answer["status"]["state"] == "succeeded", log
    assert f'"file": "{archive}/outlive/checkpoints/__init__.py' in log
    assert f'"/of/the/user", "{archive}"' in log
    assert [c["step"] for c in answer["checkpoints"]] == [3]
