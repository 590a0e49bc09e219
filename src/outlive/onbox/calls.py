"""The verbs that a client calls on a box. Each reads one request, answers in frames, and is repeatable.

A module is imported by the call that needs it: every poll of every watcher pays for what is imported here.
"""

import json
import os
import sys
from typing import IO, Any, Callable, Dict, List

from outlive.onbox.refused import Refused
from outlive.onbox.status import machine_of, status
from outlive.wire import WIRE_MAJOR, WIRE_MINOR
from outlive.wire.clock import boot_s, wall_s
from outlive.wire.frames import Torn, write_end, write_frame, write_mark
from outlive.wire.names import BoxFiles, write_aside

Call = Callable[[BoxFiles, Dict[str, Any], IO[bytes], IO[bytes]], None]


def _answer(out: IO[bytes], data: Dict[str, Any]) -> None:
    write_frame(out, {"t": "answer"}, json.dumps(data, ensure_ascii=True).encode("ascii"))


def _make_box_id(box: BoxFiles) -> None:
    """Give this box its id; of several first contacts at once exactly one wins, and none leaves half an id."""
    import uuid

    aside = "%s.%s" % (box.box_id, uuid.uuid4().hex)
    write_aside(aside, uuid.uuid4().hex.encode("ascii") + b"\n")
    try:
        os.link(aside, box.box_id)
    except FileExistsError:
        pass
    except OSError:
        if not os.path.exists(box.box_id):
            os.rename(aside, box.box_id)  # no hard links here; not exclusive, but a box meets its first client once
            return
    os.unlink(aside)


def hello(box: BoxFiles, request: Dict[str, Any], source: IO[bytes], out: IO[bytes]) -> None:
    """Make the box directory and its id on first contact; say who and what answers."""
    from outlive.onbox import start

    os.makedirs(box.dir, mode=0o700, exist_ok=True)
    if not os.path.exists(box.box_id):
        _make_box_id(box)
    with open(box.box_id) as text:
        box_id = text.read().strip()
    known = start.job_runs(box)
    if os.path.exists(box.lease):
        from outlive.onbox import boxlease

        boxlease.ensure(box, request.get("payload"))
    _answer(
        out,
        {
            "box_id": box_id,
            "machine": machine_of(box),
            "python": sys.version.split()[0],
            "executable": sys.executable,
            "wire": [WIRE_MAJOR, WIRE_MINOR],
            "boot_s": boot_s(),
            "wall_s": wall_s(),
            "uid": os.getuid(),
            "home": os.path.expanduser("~"),
            "host": os.uname().nodename,
            "root": box.root,
            "runs": [r["run"] for r in known],
            "recorded": os.path.exists(box.box),
        },
    )


def audit(box: BoxFiles, request: Dict[str, Any], source: IO[bytes], out: IO[bytes]) -> None:
    """Probe the box. Nothing is changed but probe files that are removed again."""
    from outlive.probes.audit import audit as probe

    _answer(
        out, probe(request.get("roots") or [box.root], float(request.get("budget_s", 25.0)), request.get("hints") or [])
    )


def doctor(box: BoxFiles, request: Dict[str, Any], source: IO[bytes], out: IO[bytes]) -> None:
    """Read the box as ``doctor`` does. Nothing is written."""
    from outlive.probes.checkup import checkup

    _answer(
        out,
        checkup(
            request.get("roots") or [box.root],
            float(request.get("budget_s", 25.0)),
            request.get("peers") or [],
            request.get("hints") or [],
        ),
    )


def record_box(box: BoxFiles, request: Dict[str, Any], source: IO[bytes], out: IO[bytes]) -> None:
    """Write ``box.json``: what every attempt's environment is made from. Values given win over recorded ones."""
    try:
        with open(box.box, "rb") as handle:
            data = json.loads(handle.read().decode("utf-8"))
    except (FileNotFoundError, ValueError):
        from outlive.onbox import scan

        data = scan.born(box)
    data.update(request["box"])
    write_aside(box.box, json.dumps(data).encode("utf-8"))
    _answer(out, {"up_wall_s": data["up_wall_s"]})


def code_push(box: BoxFiles, request: Dict[str, Any], source: IO[bytes], out: IO[bytes]) -> None:
    from outlive.onbox import code

    def answer(data: Dict[str, Any]) -> None:
        _answer(out, data)
        out.flush()

    try:
        code.push(box, source, answer)
    except code.BadSnapshot as error:
        raise Refused("bad_snapshot", str(error))


def run_start(box: BoxFiles, request: Dict[str, Any], source: IO[bytes], out: IO[bytes]) -> None:
    from outlive.onbox import start

    _answer(out, start.start(box, request))


def run_wake(box: BoxFiles, request: Dict[str, Any], source: IO[bytes], out: IO[bytes]) -> None:
    from outlive.onbox import start

    woken = start.wake(box, request["run"], request.get("payload") or {})
    _answer(out, {"woken": woken, "status": status(box, box.run(request["run"]))})


def run_ask(box: BoxFiles, request: Dict[str, Any], source: IO[bytes], out: IO[bytes]) -> None:
    """Put a request into the run's inbox and wait a bounded time for the answer in its journal."""
    import time

    from outlive.onbox import inbox, start
    from outlive.onbox.payload import deliver
    from outlive.wire.journal import read_all

    run = box.run(request["run"])
    if not os.path.exists(run.spec):
        raise Refused("no_run", "no run %s on this box" % request["run"])
    ask = dict(request["ask"])
    if ask.get("kind") not in inbox.KINDS:
        raise Refused("bad_ask", "no request is called %r" % ask.get("kind"))
    try:
        inbox.put(run.inbox, ask, int(boot_s() * 1000))
    except OSError:
        with start.start_lock(box):
            if not deliver(run, {"ask": ask}):
                raise
    now = status(box, run)
    if now["ended"] or not now["supervised"]:
        start.wake(box, run.id, request.get("payload") or {})
    until = time.monotonic() + float(request.get("wait_s", 5.0))
    while True:
        answers = [r for r in read_all(run.journal) if r["k"] == "answered" and r["id"] == ask["id"]]
        if answers or time.monotonic() > until:
            break
        time.sleep(0.1)
    _answer(out, {"answer": answers[-1] if answers else None, "status": status(box, run)})


def run_manifest(box: BoxFiles, request: Dict[str, Any], source: IO[bytes], out: IO[bytes]) -> None:
    """The roster with its proofs: frozen when the run has ended, else as it stands, plus checkpoints and drift.

    With ``hold``, a name, the checkpoints that are answered are held against pruning from before this look. With
    ``own``, names below the run's directory, these are listed with their digests, and so are the drifted files and,
    named ``exits``, the records of each attempt's end. With ``tag``, of an earlier answer, the answer is only ``same``
    where all of this stands as it did then.
    """
    from outlive.onbox import unchanged

    run = box.run(request["run"])
    if not os.path.exists(run.spec):
        raise Refused("no_run", "no run %s on this box" % request["run"])
    tag, manifest, drift = "", None, None
    if "tag" in request:
        tag, manifest, drift = unchanged.look(box, run, request["own"], request["exits"])
        if tag and tag == request["tag"]:
            _answer(out, {"same": True})
            return
    from outlive.onbox import code, leases, trees
    from outlive.wire.journal import read_all
    from outlive.wire.runview import RunView

    with leases.leases_lock(run):
        view = RunView().add_all(read_all(run.journal))
        if request.get("hold"):
            leases.lease(run, machine_of(box), request["hold"], list(view.checkpoints))
    if not tag:
        drift = None
        try:
            with open(run.roster, "rb") as handle:
                manifest = json.loads(handle.read().decode("utf-8"))
        except (FileNotFoundError, ValueError):
            manifest = None
    with open(run.spec) as text:
        spec = json.load(text)
    changed: List[str] = []
    for entry in (manifest or {}).get("entries", []):
        if entry.get("link"):
            continue
        try:
            info = os.stat(os.path.join(run.work, entry["path"]))
        except OSError:
            changed.append(entry["path"])
            continue
        if (info.st_size, info.st_mtime_ns) != (entry["bytes"], entry["mtime_ns"]):
            changed.append(entry["path"])
    now = status(box, run)
    if drift is None:
        drift = code.drift(box, spec.get("snapshot"), run.work)
    answer = {
        "tag": tag,
        "manifest": manifest,
        "changed": changed,
        "proofs": view.proofs,
        "copies": view.copies,
        "checkpoints": list(view.checkpoints.values()),
        "bad_checkpoints": list(view.bad_checkpoints.values()),
        "tombstones": view.tombstones,
        "drift": drift,
        "work": run.work,
        "spec": spec,
        "status": now,
    }
    if request.get("own"):
        ends = ["attempts/%d/%s" % (n, name) for n in range(1, now["attempt"] + 1) for name in request["exits"]]
        answer["own"] = trees.listing({"base": run.dir, "paths": sorted(request["own"] + ends)})
        answer["drifted"] = trees.listing({"base": run.work, "paths": sorted(drift)})
    _answer(out, answer)


def do_poll(box: BoxFiles, request: Dict[str, Any], source: IO[bytes], out: IO[bytes]) -> None:
    from outlive.onbox import poll

    poll.poll(box, request, out)


def tree_list(box: BoxFiles, request: Dict[str, Any], source: IO[bytes], out: IO[bytes]) -> None:
    from outlive.onbox import trees

    _answer(out, trees.listing(request))


def tree_have(box: BoxFiles, request: Dict[str, Any], source: IO[bytes], out: IO[bytes]) -> None:
    from outlive.onbox import trees

    _answer(out, trees.have(request, os.path.join(box.dir, trees.SEEN)))


def tree_put(box: BoxFiles, request: Dict[str, Any], source: IO[bytes], out: IO[bytes]) -> None:
    from outlive.onbox import trees

    _answer(out, trees.put(request, source))


def tree_push(box: BoxFiles, request: Dict[str, Any], source: IO[bytes], out: IO[bytes]) -> None:
    from outlive.onbox import trees

    def answer(data: Dict[str, Any]) -> None:
        _answer(out, data)
        out.flush()

    trees.push(box, source, answer)


def tree_get(box: BoxFiles, request: Dict[str, Any], source: IO[bytes], out: IO[bytes]) -> None:
    from outlive.onbox import leases, trees

    def renew() -> None:
        if request.get("run") and request.get("lease"):
            paths = [f["path"] for f in request["files"]] + list(request.get("later") or [])
            leases.lease(box.run(request["run"]), machine_of(box), request["lease"], paths)

    trees.get(request, out, renew)
    if request.get("run") and request.get("lease") and not request.get("later"):
        leases.release(box.run(request["run"]), request["lease"])


def lease_release(box: BoxFiles, request: Dict[str, Any], source: IO[bytes], out: IO[bytes]) -> None:
    """Let go of what a ``run_manifest`` with ``hold`` held."""
    from outlive.onbox import leases

    leases.release(box.run(request["run"]), request["lease"])
    _answer(out, {})


def gate_scan(box: BoxFiles, request: Dict[str, Any], source: IO[bytes], out: IO[bytes]) -> None:
    from outlive.onbox import scan

    _answer(out, scan.gate_scan(box, request))


def lease_set(box: BoxFiles, request: Dict[str, Any], source: IO[bytes], out: IO[bytes]) -> None:
    from outlive.onbox import boxlease

    _answer(out, boxlease.set_lease(box, request))


def lease_clear(box: BoxFiles, request: Dict[str, Any], source: IO[bytes], out: IO[bytes]) -> None:
    from outlive.onbox import boxlease

    _answer(out, boxlease.clear_lease(box))


def claim(box: BoxFiles, request: Dict[str, Any], source: IO[bytes], out: IO[bytes]) -> None:
    """Remember pushed data, so that `down` does not take it for somebody's unsaved work."""
    from outlive.onbox import scan

    scan.claim(box, request["paths"])
    _answer(out, {"claims": scan.claims(box)})


def fence(box: BoxFiles, request: Dict[str, Any], source: IO[bytes], out: IO[bytes]) -> None:
    """Tell a run that it moved: whoever wakes up here later stops."""
    from outlive.onbox import start

    run = box.run(request["run"])
    if not os.path.exists(run.spec):
        raise Refused("no_run", "no run %s on this box" % request["run"])
    write_aside(run.fence, json.dumps(request["by"]).encode("utf-8"))
    now = status(box, run)
    if not now["ended"] and not now["supervised"]:
        start.wake(box, run.id, {})
    _answer(out, {"status": status(box, run)})


def purge(box: BoxFiles, request: Dict[str, Any], source: IO[bytes], out: IO[bytes]) -> None:
    """Delete our directory on this box, or the named runs. The gate has spoken before; this refuses only live runs.

    Answers with every path that was removed.
    """
    import time

    from outlive.onbox import start
    from outlive.onbox.lock import supervised

    wanted = request.get("runs")
    live = [
        s["run"]
        for s in start.job_runs(box)
        if (wanted is None or s["run"] in wanted) and (s["work_alive"] or (s["job"] and not s["ended"]))
    ]
    if live:
        raise Refused("run_alive", "not deleted: %s not ended" % ", ".join(live), runs=live)
    with open(box.box_id) as text:
        if text.read().strip() != request["box_id"]:
            raise Refused("other_box", "this is not the box that was asked for")
    # an ended run's supervisor tidies up for a moment longer, in the directory that goes
    until = time.monotonic() + 15.0
    for run_id in box.run_ids() if wanted is None else wanted:
        while supervised(box.run(run_id)) and time.monotonic() < until:
            time.sleep(0.1)
    targets = [box.run(r).dir for r in wanted] if wanted is not None else [box.dir]
    removed = []
    for target in targets:
        if os.path.isdir(target):
            _delete(target)
            removed.append(target)
    _answer(out, {"removed": removed})


LATE = ("supervisor-", "quick-")
"""Names that a program of ours may still write as it ends: its bytecode, the quick answer."""


def _delete(target: str) -> None:
    """Delete a directory. What came into it meanwhile was not asked about, so it stays, unless it is ``LATE``."""
    import errno
    import shutil
    import time

    until = time.monotonic() + 10.0
    while True:
        try:
            shutil.rmtree(target)
            return
        except FileNotFoundError:
            if not os.path.lexists(target):
                return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if not all(name.startswith(LATE) for name in os.listdir(target)):
                raise
        if time.monotonic() > until:
            raise Refused("os", "%s does not become empty: something goes on writing there" % target)
        time.sleep(0.05)


CALLS: Dict[str, Call] = {
    "audit": audit,
    "claim": claim,
    "code_push": code_push,
    "doctor": doctor,
    "fence": fence,
    "gate_scan": gate_scan,
    "hello": hello,
    "lease_clear": lease_clear,
    "lease_release": lease_release,
    "lease_set": lease_set,
    "poll": do_poll,
    "purge": purge,
    "record_box": record_box,
    "run_ask": run_ask,
    "run_manifest": run_manifest,
    "run_start": run_start,
    "run_wake": run_wake,
    "tree_get": tree_get,
    "tree_have": tree_have,
    "tree_list": tree_list,
    "tree_push": tree_push,
    "tree_put": tree_put,
}


def _check_identity(box: BoxFiles, expected: str) -> None:
    """An address can lead to another machine than yesterday: then nothing is done."""
    try:
        with open(box.box_id) as text:
            found = text.read().strip()
    except FileNotFoundError:
        found = ""
    if found != expected:
        raise Refused("other_box", "this is not the box that was meant", box_id=found)


def serve(source: IO[bytes], out: IO[bytes]) -> int:
    """Read a request line ``{"call", "root", "nonce", ...}`` and answer it; after one with ``more`` the next.

    Several requests over one process save its start and a connection's round trips for each.
    """
    while True:
        line = source.readline()
        if not line:
            return 0
        request = json.loads(line.decode("utf-8"))
        _serve(request, source, out)
        if not request.get("more"):
            return 0


def _serve(request: Dict[str, Any], source: IO[bytes], out: IO[bytes]) -> None:
    write_mark(out, request["nonce"])
    out.flush()
    box = BoxFiles(os.path.normpath(os.path.expanduser(request["root"])))
    call = CALLS.get(request["call"])
    try:
        if request.get("box_id"):
            _check_identity(box, request["box_id"])
        if call is None:
            raise Refused(
                "no_call", "this box does not know %r; it speaks wire %d.%d" % (request["call"], WIRE_MAJOR, WIRE_MINOR)
            )
        call(box, request, source, out)
    except Refused as error:
        write_frame(out, {"t": "refused", "code": error.code, "text": str(error), "facts": error.facts})
    except Torn as error:
        write_frame(out, {"t": "refused", "code": "torn", "text": str(error), "facts": {}})
    except OSError as error:
        write_frame(
            out,
            {
                "t": "refused",
                "code": "os",
                "text": "%s: %s" % (error.filename or request["call"], error.strerror),
                "facts": {"errno": error.errno},
            },
        )
    except Exception as error:  # the outer edge: a client that only saw a cut reply would blame the connection
        import traceback

        traceback.print_exc()
        write_frame(out, {"t": "refused", "code": "bug", "text": "%s: %s" % (type(error).__name__, error), "facts": {}})
    write_end(out)
