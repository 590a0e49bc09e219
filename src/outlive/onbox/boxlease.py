"""The box lease: says that a box stands idle and bills, from `up` to `down`, with every client asleep.

One process, ``supervisor.pyz lease ROOT``, stands on the lock of ``lease.lock``. It counts the time without a live
attempt on the boot clock, sends a notice at the limit and repeats it, and stops nothing: what ends a box is its
owner's word. It ends when ``lease.json`` is gone or was written anew (its successor stands already), and is started
again by the next contact of a client after the box restarted.
"""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from typing import Any, Dict, List, Optional

from outlive.onbox.context import program, read_json
from outlive.onbox.lock import held, take
from outlive.onbox.refused import Refused
from outlive.onbox.status import machine_of, status
from outlive.wire.clock import boot_s, wall_s
from outlive.wire.journal import JournalWriter, read_all
from outlive.wire.names import BoxFiles, write_aside

LOOK_S = 10.0


def set_lease(box: BoxFiles, request: Dict[str, Any]) -> Dict[str, Any]:
    """Set or replace the lease and start its process. Answers as ``read``.

    ``request``: ``idle_s`` (limit), ``repeat_s`` (default 3600), ``look_s`` (default 10), ``payload`` (``notify``:
    addresses, kept in memory only). Raises Refused ``bad_lease``.
    """
    try:
        lease: Dict[str, Any] = {
            "id": uuid.uuid4().hex,
            "idle_s": float(request["idle_s"]),
            "repeat_s": float(request.get("repeat_s", 3600.0)),
            "look_s": float(request.get("look_s", LOOK_S)),
            "set_w": wall_s(),
        }
    except (KeyError, TypeError, ValueError) as error:
        raise Refused("bad_lease", "a box lease needs idle_s in seconds: %s" % error)
    if not (lease["idle_s"] > 0 and lease["repeat_s"] > 0 and lease["look_s"] > 0):
        raise Refused("bad_lease", "a box lease's times must be greater than zero")
    write_aside(box.lease, json.dumps(lease).encode("ascii"))
    _spawn(box, request.get("payload") or {})
    return read(box) or {}


def clear_lease(box: BoxFiles) -> Dict[str, Any]:
    """End the lease. Repeating it changes nothing."""
    try:
        os.unlink(box.lease)
    except FileNotFoundError:
        return {"cleared": False}
    return {"cleared": True}


def ensure(box: BoxFiles, payload: Optional[Dict[str, Any]] = None) -> bool:
    """Start the process of a lease that has none, as after a restart of the box. Returns whether one was started."""
    if not os.path.exists(box.lease) or held(box.lease_lock):
        return False
    _spawn(box, payload or {})
    return True


def read(box: BoxFiles) -> Optional[Dict[str, Any]]:
    """Return the lease as it stands, or None.

    ``idle_s`` (limit), ``idle_for_s``, ``over``, ``watched`` (its process lives), ``notified_w``, ``repeat_s``.
    """
    lease = read_json(box.lease)
    if lease is None:
        return None
    records = read_all(box.lease_journal)
    since_b = idle_since(records, machine_of(box))
    idle_for_s = 0.0 if since_b is None else max(0.0, boot_s() - since_b)
    notices = [r["w"] for r in records if r["k"] == "lease_over" and r["lease"] == lease["id"]]
    return {
        "idle_s": lease["idle_s"],
        "repeat_s": lease["repeat_s"],
        "set_w": lease["set_w"],
        "idle_for_s": idle_for_s,
        "over": idle_for_s >= lease["idle_s"],
        "watched": held(box.lease_lock),
        "notified_w": notices[-1] if notices else None,
    }


def idle_since(records: List[Dict[str, Any]], machine: str) -> Optional[float]:
    """Return the boot time since which this machine is idle, by the journal; None while it is busy or unlooked at.

    What was counted on another boot is void: the clock started anew, and nobody knows how long the box was off.
    """
    since: Optional[float] = None
    for record in records:
        if record.get("machine") != machine:
            continue
        if record["k"] == "lease_idle":
            since = float(record["since_b"])
        elif record["k"] == "lease_busy":
            since = None
    return since


def live_runs(box: BoxFiles, machine: str) -> List[str]:
    """Return the runs with a living process of an attempt. Ended runs that are done cost one look each."""
    runs = [r for r in box.run_ids() if os.path.exists(box.run(r).spec) and not os.path.exists(box.run(r).done)]
    return [r for r in runs if status(box, box.run(r), machine)["work_alive"]]


def _spawn(box: BoxFiles, payload: Dict[str, Any]) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("OUTLIVE_")}
    process = subprocess.Popen(
        program() + ["lease", box.root],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=env,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps({"notify": payload.get("notify") or []}).encode("ascii") + b"\n")
    process.stdin.close()
    process.wait()


class Watch:
    """Counts and tells. ``look`` is called every ``look_s``."""

    def __init__(self, box: BoxFiles, lease: Dict[str, Any], addresses: List[str]) -> None:
        from outlive.onbox.children import Crew

        self.box, self.lease, self.addresses = box, lease, addresses
        self.machine = machine_of(box)
        self.journal = JournalWriter(box.lease_journal)
        self.crew = Crew(1)
        records = read_all(box.lease_journal)
        self.since_b = idle_since(records, self.machine)
        told = [
            r for r in records if r["k"] == "lease_over" and r["lease"] == lease["id"] and r["machine"] == self.machine
        ]
        self.told_b: Optional[float] = float(told[-1]["b"]) if told else None
        self._count = 0

    def look(self) -> None:
        """Look once; the journal keeps what a successor has to know."""
        self.crew.tick()
        now = boot_s()
        if live_runs(self.box, self.machine):
            if self.since_b is not None or self._count == 0:
                self._append("lease_busy")
            self.since_b = self.told_b = None
        elif self.since_b is None:
            self.since_b = now
            self._append("lease_idle", since_b=now)
        self._count += 1
        if self.since_b is None or now - self.since_b < self.lease["idle_s"]:
            return
        if self.told_b is None or now - self.told_b >= self.lease["repeat_s"]:
            self.told_b = now
            self._tell(now - self.since_b)

    def _append(self, kind: str, **fields: Any) -> None:
        try:
            self.journal.append(kind, lease=self.lease["id"], machine=self.machine, **fields)
        except OSError:
            pass  # a full disk: we count on from memory, and a successor counts from its own start

    def _tell(self, idle_s: float) -> None:
        host = os.uname().nodename
        sentence = "no work has run for %s; this box still bills" % _hours(idle_s)
        self._append("lease_over", idle_s=round(idle_s, 1), addresses=len(self.addresses))
        body = {
            "schema": "outlive/notice/1",
            "kind": "box_idle",
            "host": host,
            "text": "outlive: %s: %s" % (host, sentence),
            "sentence": sentence,
            "facts": {"idle_s": idle_s, "limit_s": self.lease["idle_s"]},
        }
        for position, url in enumerate(self.addresses):

            def done(answer: Dict[str, Any], position: int = position) -> None:
                # the address itself is a secret; its position in the list is not
                self._append(
                    "notified", notice="box_idle", to=position, ok="error" not in answer, why=answer.get("error", "")
                )

            self.crew.add("idle-%d-%d" % (self._count, position), "notice", {"url": url, "body": body}, 60.0, done)


def _hours(seconds: float) -> str:
    return "%.1f hours" % (seconds / 3600.0) if seconds >= 5400 else "%.0f minutes" % (seconds / 60.0)


def main(root: str) -> int:
    """Detach and watch until the lease is cleared or replaced. Returns at once in the parent."""
    payload = json.loads(sys.stdin.readline() or "{}")
    box = BoxFiles(root)
    if os.fork():
        return 0
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.chdir("/")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    lease = read_json(box.lease)
    if lease is None:
        os._exit(0)
    # the one before us leaves at its next look, when it sees that the lease is another one
    if take(box.lease_lock, wait_s=2.0 * max(LOOK_S, lease["look_s"]) + 5.0) is None:
        os._exit(0)
    watch = Watch(box, lease, list(payload.get("notify") or []))
    while (read_json(box.lease) or {}).get("id") == lease["id"]:
        try:
            watch.look()
        except (OSError, ValueError, KeyError):
            pass  # a run that is being removed, a full disk: the next look sees more
        until = boot_s() + lease["look_s"]
        while boot_s() < until:
            watch.crew.tick()
            time.sleep(min(0.5, lease["look_s"]))
            if not os.path.exists(box.lease):
                break
    os._exit(0)
