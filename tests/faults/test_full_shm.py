"""The 64 MB of /dev/shm that a container gets are full: the work is told why it dies, and our half needs none of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from servers.clients import Client

from outlive.runs.pull import pull

TOUCHES = """
import mmap, os, sys
print("step 1 loss 1.0", flush=True)
fd = os.open("/dev/shm/torch_%d" % os.getpid(), os.O_RDWR | os.O_CREAT)
os.unlink("/dev/shm/torch_%d" % os.getpid())
os.ftruncate(fd, 16 << 20)
memory = mmap.mmap(fd, 16 << 20)
for at in range(0, 16 << 20, 4096):
    memory[at] = 1  # a page that the file system does not have: SIGBUS, as a loader's worker gets it
"""

SAYS = """
import os
print("step 1 loss 1.0", flush=True)
raise RuntimeError("unable to write to file </torch_9_1_0>: No space left on device (28)")
"""


def fill(box: Any) -> None:
    box.ssh(
        "dd if=/dev/zero of=/dev/shm/filler bs=1M 2>/dev/null; df -B1 --output=avail /dev/shm | tail -1", check=True
    )
    assert box.ssh("df -B1 --output=avail /dev/shm | tail -1", check=True).stdout.strip() == "0"


def test_everything_of_ours_works_with_a_full_shm(box_factory: Any, client: Client, tmp_path: Path) -> None:
    box = box_factory()
    fill(box)
    client.up(box)
    run = client.run(client.job(env={"LAST": "10", "STEP_S": "0.02"})).run
    final = client.until(run, lambda s: s["ended"] and not s["supervised"])
    assert final["state"] == "succeeded" and final["checkpoint"]["step"] == 10 and final["troubles"] == {}
    assert pull(client.home, run, to=tmp_path / "result").delivery == "proved"


@pytest.mark.parametrize("code", [TOUCHES, SAYS], ids=["bus-error", "no-space"])
def test_work_that_dies_of_it_is_told_its_name(box_factory: Any, client: Client, code: str) -> None:
    box = box_factory()
    fill(box)
    client.up(box)
    run = client.run(client.job("loads", "python", "-c", code)).run
    final = client.until(run, lambda s: s["ended"])
    assert final["state"] == "failed"
    assert "/dev/shm" in final["why"] or "shared memory" in final["why"], final["why"]
    assert final["attempt"] == 1, "starting it again would end the same"
