"""A box in a directory, driven only as a client drives it: the packed program, one command for each call.

Runs on Python 3.8 with pytest alone, so nothing of the client is imported: the program is packed here, from the same
packages, and started with the interpreter that runs the tests.
"""

import io
import json
import os
import signal
import subprocess
import sys
import time
import uuid
import zipfile
from pathlib import Path

from outlive.wire.frames import read_frames, skip_to_mark
from outlive.wire.journal import read_all
from outlive.wire.names import BoxFiles
from outlive.wire.runview import RunView
from outlive.wire.states import RUN_MOVES, move_allowed

SOURCE = Path(sys.modules["outlive.wire"].__file__).parent.parent
PACKAGES = ("artifacts", "checkpoints", "diagnose", "onbox", "probes", "wire")
MAIN = "import sys\nfrom outlive.onbox.__main__ import main\nsys.exit(main(sys.argv[1:]))\n"
LIMITS = {"scan_s": 0.2, "sample_s": 0.5, "retry_wait_s": 0.2, "grace_s": 1.0}


class Refused(Exception):
    def __init__(self, header):
        super().__init__(header["text"])
        self.code, self.facts = header["code"], header["facts"]


def pack(path):
    """Pack the travelling packages into ``path``, as the client does."""
    with zipfile.ZipFile(str(path), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__main__.py", MAIN)
        archive.writestr("outlive/__init__.py", "")
        for package in PACKAGES:
            for file in sorted((SOURCE / package).rglob("*")):
                if file.suffix in (".py", ".sh", ".json") and "__pycache__" not in file.parts:
                    archive.write(str(file), "outlive/" + file.relative_to(SOURCE).as_posix())
    return str(path)


class Box:
    """One root with its program. ``end`` kills whatever was started below it."""

    def __init__(self, program, root):
        self.program, self.root = program, str(root)
        self.files = BoxFiles(self.root)
        self.environment = dict(os.environ)
        self.call("hello")
        self.call("record_box", box={"environment": {"PATH": os.environ["PATH"]}, "defaults": {}, "thread_cap": 1})

    # -- calls

    def frames(self, name, payload_frames=b"", **request):
        nonce = uuid.uuid4().hex
        line = json.dumps(dict(request, call=name, root=self.root, nonce=nonce)).encode("ascii") + b"\n"
        done = subprocess.run(
            [sys.executable, "-I", "-S", self.program, "call"],
            input=line + payload_frames,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=60,
            env=self.environment,
        )
        source = io.BytesIO(done.stdout)
        skip_to_mark(source, nonce)
        found = list(read_frames(source))
        for header, _payload in found:
            if header["t"] == "refused":
                raise Refused(header)
        return found

    def call(self, name, **request):
        for header, payload in self.frames(name, **request):
            if header["t"] == "answer":
                return json.loads(payload.decode("utf-8"))
        raise AssertionError("no answer to " + name)

    # -- runs

    def spec(self, run, **keys):
        """A spec of one stage, or of the stages given as a list of dictionaries."""
        limits = dict(LIMITS, **keys.pop("limits", {}))
        stages = run if isinstance(run, list) and isinstance(run[0], dict) else [{"name": "main", "run": run}]
        return dict({"job": "job", "stages": stages, "limits": limits, "python": sys.executable}, **keys)

    def start(self, run, payload=None, token=None, wait_s=8.0, **keys):
        """Start a run and return its ``Run``."""
        answer = self.call(
            "run_start",
            token=token or uuid.uuid4().hex,
            spec=self.spec(run, **keys),
            payload=payload or {},
            wait_s=wait_s,
        )
        found = Run(self, answer["run"])
        found.how, found.first = answer["how"], answer["status"]
        return found

    def python(self, code, **keys):
        return self.start(["python", "-c", code], **keys)

    # -- the end

    def processes(self):
        """Pids of everything that runs for this root, ours and the work's."""
        mine = self.root.encode()
        found = []
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) == os.getpid():
                continue
            for part in ("cmdline", "environ"):
                try:
                    with open("/proc/%s/%s" % (name, part), "rb") as handle:
                        if mine in handle.read():
                            found.append(int(name))
                            break
                except OSError:
                    continue
        return found

    def end(self):
        for _ in range(40):
            pids = self.processes()
            if not pids:
                return
            for pid in pids:
                kill(pid)
            time.sleep(0.05)
        raise AssertionError("still there: %r" % pids)


class Run:
    """One run as its client sees it."""

    def __init__(self, box, run):
        self.box, self.id = box, run
        self.files = box.files.run(run)

    def status(self):
        for header, _payload in self.box.frames("poll", runs={self.id: {}}):
            if header["t"] == "run":
                return header["status"]
        raise AssertionError("no such run")

    def journal(self, kind=None):
        return [r for r in read_all(self.files.journal) if kind is None or r["k"] == kind]

    def view(self):
        return RunView().add_all(self.journal())

    def until(self, condition, limit_s=90.0):
        """Poll until ``condition(status)``; returns that status."""
        deadline = time.monotonic() + limit_s
        while True:
            status = self.status()
            if condition(status):
                return status
            if time.monotonic() > deadline:
                raise AssertionError("not reached; %s\n%s" % (json.dumps(status, indent=1), self.told()))
            time.sleep(0.1)

    def until_journal(self, kind, limit_s=90.0, **fields):
        """Wait for a record; cheaper than polling."""
        deadline = time.monotonic() + limit_s
        while True:
            for record in self.journal(kind):
                if all(record.get(k) == v for k, v in fields.items()):
                    return record
            if time.monotonic() > deadline:
                raise AssertionError("no %s %r\n%s" % (kind, fields, self.told()))
            time.sleep(0.05)

    def ended(self, limit_s=120.0):
        """Wait for the end; the journal's states must have moved as the table allows."""
        self.until_journal("ended", limit_s)
        states = ["starting"] + [r["state"] for r in self.journal() if r["k"] in ("state", "ended")]
        wrong = [m for m in zip(states, states[1:]) if not move_allowed(RUN_MOVES, *m)]
        assert not wrong, wrong
        assert self.troubles() == {}, self.told()
        return self.status()

    def troubles(self):
        return self.view().troubles

    def told(self):
        """Everything that helps to understand a failure."""
        text = "\n".join(json.dumps(r)[:400] for r in self.journal()[-25:])
        for name in (self.files.supervisor_err, self.files.log):
            if os.path.exists(name):
                with open(name, "rb") as handle:
                    text += "\n-- %s\n%s" % (name, handle.read(4000).decode("utf-8", "replace"))
        return text

    def log(self):
        with open(self.files.log, "rb") as handle:
            return handle.read()

    def ask(self, kind, wait_s=8.0, **fields):
        ask = dict(fields, id=uuid.uuid4().hex, kind=kind)
        return self.box.call("run_ask", run=self.id, ask=ask, wait_s=wait_s)["answer"]

    def wake(self, **payload):
        return self.box.call("run_wake", run=self.id, payload=payload)

    def work_pid(self, attempt=None, limit_s=60.0):
        """Pid of the work's first process, once it was recorded."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            number = attempt or self.status()["attempt"]
            try:
                with open(self.files.attempt(number).work) as handle:
                    return json.load(handle)["pid"]
            except (FileNotFoundError, ValueError):
                time.sleep(0.05)
        raise AssertionError("no work\n" + self.told())

    def supervisor_pid(self):
        with open(self.files.supervisor) as handle:
            return int(handle.read().split()[0])

    def keeper_pid(self, attempt=1):
        with open(self.files.attempt(attempt).keeper) as handle:
            return int(handle.read().split()[0])

    def keepers(self):
        """Every keeper shell of this run, guards and background halves included."""
        found = []
        for pid in self.box.processes():
            try:
                with open("/proc/%d/cmdline" % pid, "rb") as handle:
                    words = handle.read().split(b"\0")
            except OSError:
                continue
            if any(b"keeper" in os.path.basename(w) for w in words[:4]) and self.files.dir.encode() in words:
                found.append(pid)
        return found

    def path(self, *parts):
        return os.path.join(self.files.work, *parts)


def kill(pid, number=signal.SIGKILL):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
