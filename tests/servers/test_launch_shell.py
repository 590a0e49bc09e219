"""Every emitted shell file is read by shellcheck, and those for docker do what they refuse to do."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from outlive.errors import UsageError
from outlive.launch.description import Fabric, Launch, Mount
from outlive.launch.kinds import KINDS, render

NASTY = ("--note", 'it\'s a "test" $(touch x) `touch y` \\ {{z}} *', "--name={micro_batch}", "")


def shapes() -> list[Launch]:
    plain = {
        "strategy": "zero3", "block_classes": ("Block",), "args": NASTY, "checkpoint_dir": "/mnt/my ckpt",
        "env": (("NOTE", "a b $HOME 'c'"),), "mtbf_s": 3600.0,
    }  # fmt: skip
    several = {**plain, "nodes": 2, "gpus_per_node": 8}
    return [
        Launch(**plain),
        Launch(**{**plain, "checkpoint_dir": "out/ckpt", "device": "cpu", "strategy": "ddp"}),
        Launch(**several, hosts=("node-a", "10.0.0.2"), fabric=Fabric(interface="eth0", infiniband=("mlx5_0:1",))),
        Launch(**several, fabric=Fabric(infiniband=(), peer_to_peer=False), partition="gpu", account="me"),
        Launch(**several, mounts=(Mount(source="/data/x y", target="/data", read_only=True),), min_nodes=1),
    ]


@pytest.mark.parametrize("kind", list(KINDS))
def test_shellcheck_finds_nothing(kind, tmp_path):
    if shutil.which("shellcheck") is None:
        pytest.fail("shellcheck is not installed; run: sudo testbed/install.sh")
    scripts = 0
    for number, launch in enumerate(shapes()):
        try:
            files = render(launch, kind).files
        except UsageError:
            continue
        for file in files:
            if file.name.endswith(".sh"):
                path = tmp_path / f"{number}-{file.name}"
                path.write_text(file.text)
                # SC2016: what looks like a variable in single quotes is what somebody typed, to arrive as typed
                done = subprocess.run(
                    ["shellcheck", "--exclude=SC2016", str(path)], capture_output=True, text=True, timeout=120
                )
                assert done.returncode == 0, done.stdout
                scripts += 1
    written = {"torchrun", "torchrun-elastic", "accelerate", "slurm", "docker", "docker-nodes", "nccl", "nsys"}
    assert (scripts > 0) == (kind in written | {"deepspeed"})


FAKE = """#!/bin/sh
for word; do printf '%s\\n' "$word"; done >"$SEEN"
"""


def run(script: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(script), *words], cwd=script.parent, capture_output=True, text=True, timeout=60,
        env={"PATH": f"{script.parent}/bin:{os.environ['PATH']}", "SEEN": str(script.parent / "seen"), **more},
    )  # fmt: skip


def stage(tmp_path: Path, launch: Launch, kind: str, program: str) -> Path:
    """Write the main file beside a stand-in that records the words it was started with."""
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / program
    fake.write_text(FAKE)
    fake.chmod(0o755)
    script = tmp_path / "start.sh"
    script.write_text(render(launch, kind).main.text)
    return script


def seen(script: Path) -> list[str]:
    return (script.parent / "seen").read_text().splitlines()


def test_words_arrive_as_they_were_typed(tmp_path):
    script = stage(tmp_path, Launch(args=NASTY[:3], micro_batch=7, checkpoint_dir="c"), "torchrun", "torchrun")
    assert run(script).returncode == 0
    assert seen(script)[-4:] == ["train.py", "--note", 'it\'s a "test" $(touch x) `touch y` \\ {z} *', "--name=7"]
    assert not (tmp_path / "x").exists() and not (tmp_path / "y").exists()


def test_docker_gets_gpus_memory_mounts_and_time(tmp_path):
    ckpt = tmp_path / "ckpt"
    launch = Launch(gpus_per_node=4, workers=8, checkpoint_dir=str(ckpt), grace_s=90, image="me/image:1")
    script = stage(tmp_path, launch, "docker", "docker")
    assert run(script).returncode == 0
    words = seen(script)
    assert words[:2] == ["run", "--detach"]
    assert {"--gpus=4", f"--shm-size={4 * 8 * (2 << 30)}", "--stop-timeout=90", "--name=train"} <= set(words)
    assert f"--mount=type=bind,source={tmp_path},target=/work" in words
    assert f"--mount=type=bind,source={ckpt},target={ckpt}" in words
    assert words[words.index("me/image:1") + 1 :][:3] == ["torchrun", "--nnodes=1", "--nproc-per-node=4"]
    assert ckpt.is_dir()


def test_a_node_without_the_checkpoint_mount_is_refused(tmp_path):
    ckpt = tmp_path / "ckpt"
    launch = Launch(nodes=2, gpus_per_node=8, hosts=("a", "b"), checkpoint_dir=str(ckpt))
    script = stage(tmp_path, launch, "docker-nodes", "docker")
    refused = run(script, "1")
    assert refused.returncode == 1 and "every node needs the same one mounted" in refused.stderr
    assert not (tmp_path / "seen").exists()
    ckpt.mkdir()
    assert run(script, "1").returncode == 0
    words = seen(script)
    assert {"--network=host", "--node-rank=1", "--master-addr=a", "--master-port=29500"} <= set(words)
    assert f"--mount=type=bind,source={ckpt},target={ckpt}" in words


@pytest.mark.parametrize("kind", ["torchrun", "docker-nodes"])
@pytest.mark.parametrize("typed", [[], ["x"], ["2"], ["-1"]])
def test_a_node_number_that_cannot_be_is_refused(tmp_path, kind, typed):
    ckpt = tmp_path / "ckpt"
    ckpt.mkdir()
    launch = Launch(nodes=2, hosts=("a", "b"), checkpoint_dir=str(ckpt))
    script = stage(tmp_path, launch, kind, "docker" if kind == "docker-nodes" else "torchrun")
    refused = run(script, *typed)
    assert refused.returncode == 2 and "a number from 0 to 1" in refused.stderr
    assert not (tmp_path / "seen").exists()


def test_a_taken_port_is_said_before_the_start(tmp_path):
    import socket

    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        launch = Launch(nodes=2, hosts=("a", "b"), checkpoint_dir=str(tmp_path), port=port)
        script = stage(tmp_path, launch, "torchrun", "torchrun")
        refused = run(script, "0")
        assert refused.returncode == 1 and f"port {port} is taken" in refused.stderr
        assert run(script, "1").returncode == 0  # it is the first node's port
    assert "--node-rank=1" in seen(script)


def test_without_host_names_the_meeting_point_is_asked_for(tmp_path):
    script = stage(tmp_path, Launch(nodes=2, checkpoint_dir=str(tmp_path)), "torchrun", "torchrun")
    refused = run(script, "0")
    assert refused.returncode != 0 and "MASTER_ADDR" in refused.stderr
    assert run(script, "0", MASTER_ADDR="first", MASTER_PORT="0").returncode == 0
    assert "--master-addr=first" in seen(script)
