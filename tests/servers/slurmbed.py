"""A real Slurm of two nodes on this machine: munged, slurmctld and two slurmd of its own, on ports of its own.

The nodes are called `bed1` and `bed2`; each has one CPU and one GPU that is a null device. Their names resolve inside
their own mount namespace only, so nothing of this machine's configuration is touched.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAMS = ("sbatch", "slurmctld", "slurmd", "munged")
LIMIT_S = 180

CONF = """\
ClusterName=bed
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={bed}/munge.sock
SlurmctldPort={port}
StateSaveLocation={bed}/state
SlurmdSpoolDir={bed}/spool-%n
SlurmctldPidFile={bed}/ctld.pid
SlurmdPidFile={bed}/slurmd-%n.pid
SlurmctldLogFile={bed}/ctld.log
SlurmdLogFile={bed}/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0,sched_min_interval=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=2
KillWait=10
SlurmdTimeout=300
NodeName=bed1 NodeHostname={host} NodeAddr=127.0.0.1 Port={port1} CPUs=1 RealMemory=1000 Gres=gpu:1
NodeName=bed2 NodeHostname={host} NodeAddr=127.0.0.1 Port={port2} CPUs=1 RealMemory=1000 Gres=gpu:1
PartitionName=main Nodes=bed[1-2] Default=YES MaxTime=60
"""


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on now."""
    holders = [socket.socket() for _ in range(count)]
    for holder in holders:
        holder.bind(("127.0.0.1", 0))
    ports = [int(holder.getsockname()[1]) for holder in holders]
    for holder in holders:
        holder.close()
    return ports


class Slurm:
    """The daemons. ``env`` is what sbatch, scontrol and the like need."""

    def __init__(self, bed: Path) -> None:
        missing = [name for name in PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None]
        if missing:
            pytest.fail(f"not installed: {', '.join(missing)}; run: sudo testbed/install.sh")
        self.bed = bed
        self._processes: list[subprocess.Popen[bytes]] = []
        host = socket.gethostname().split(".")[0]
        port, port1, port2 = free_ports(3)
        (bed / "state").mkdir(parents=True)
        conf = bed / "slurm.conf"
        conf.write_text(CONF.format(host=host, bed=bed, port=port, port1=port1, port2=port2))
        (bed / "gres.conf").write_text(f"NodeName=bed[1-2] Name=gpu Count=1 File={bed}/gpu0\n")
        os.mknod(bed / "gpu0", 0o20666, os.makedev(1, 3))
        (bed / "hosts").write_text(Path("/etc/hosts").read_text() + "\n127.0.0.1 bed1 bed2\n")
        key = bed / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}:/usr/sbin"
        self.env = {"PATH": path, "SLURM_CONF": str(conf), "HOME": os.environ.get("HOME", "/root")}
        files = [f"--socket={bed}/munge.sock", f"--key-file={key}", f"--pid-file={bed}/munge.pid"]
        files += [f"--log-file={bed}/munge.log", f"--seed-file={bed}/munge.seed"]
        self._start("munged", "--foreground", "--force", "--num-threads=2", *files)
        self._until("munge's socket", lambda: (bed / "munge.sock").exists())
        self._start("slurmctld", "-D", "-i")
        for node in ("bed1", "bed2"):
            inside = f"mount --bind {bed}/hosts /etc/hosts && exec slurmd -D -N {node}"
            self._start("unshare", "--mount", "sh", "-c", inside)
        self._until("two idle nodes", lambda: self.say("sinfo", "-h", "-o", "%D %t", check=False).strip() == "2 idle")

    def say(self, *words: str, check: bool = True, cwd: Path | None = None) -> str:
        """Run one of Slurm's commands and return what it printed."""
        done = subprocess.run(words, env=self.env, cwd=cwd, capture_output=True, text=True, timeout=60)
        if check and done.returncode:
            pytest.fail(f"{' '.join(words)}: {done.stderr}\n{self.logs()}")
        return done.stdout

    def field(self, job: str, name: str) -> str:
        """Return one field of `scontrol show job`."""
        said = self.say("scontrol", "-o", "show", "job", job)
        return next((word.partition("=")[2] for word in said.split() if word.startswith(name + "=")), "")

    def until(self, job: str, *states: str) -> str:
        """Wait until the job is in one of the states; return it."""
        self._until(f"job {job} {states}", lambda: self.field(job, "JobState") in states)
        return self.field(job, "JobState")

    def logs(self) -> str:
        """Return the ends of the daemons' logs, for a failing test."""
        return "\n".join(f"-- {log.name}\n{log.read_text(errors='replace')[-1500:]}" for log in self.bed.glob("*.log"))

    def close(self) -> None:
        """End the jobs, then the daemons, the newest first."""
        try:
            self.say("scancel", "--user=root", check=False)
            self._until("no job", lambda: not self.say("squeue", "-h", check=False).strip())
        finally:
            for process in reversed(self._processes):
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait(30)

    def _start(self, *words: str) -> None:
        with (self.bed / f"{words[0]}-{len(self._processes)}.out").open("wb") as sink:
            self._processes.append(
                subprocess.Popen(
                    words, env=self.env, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
                )
            )

    def _until(self, what: str, true: object) -> None:
        end = time.monotonic() + LIMIT_S
        while not true():  # type: ignore[operator]
            if time.monotonic() > end:
                pytest.fail(f"after {LIMIT_S} s still not: {what}\n{self.logs()}")
            time.sleep(0.2)
