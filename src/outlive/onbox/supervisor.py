"""The supervisor: one resident process per run, until its last copy is proved.

It samples, tails, parses, decides, copies, prunes and notifies; it holds nothing that the work
needs, so killing it costs nothing but the time until a keeper starts the next one.
"""

import json
import os
import signal
import sys
import time
import traceback
from typing import Any, Callable, Dict, List, Optional

from outlive.diagnose.alarms import Alarms
from outlive.onbox import attempt as attempts
from outlive.onbox import inbox, then
from outlive.onbox.context import Context, read_json
from outlive.onbox.durable import Durable
from outlive.onbox.elsewhere import lives_elsewhere
from outlive.onbox.keep import Keep
from outlive.onbox.life import Life
from outlive.onbox.lock import lock_run
from outlive.onbox.notice import Notifier
from outlive.onbox.payload import PayloadPipe, deliver, merge
from outlive.onbox.samples import Sampler
from outlive.onbox.tail import LogTail
from outlive.onbox.wake import Wake
from outlive.onbox.watching import Watching
from outlive.probes.process import set_subreaper, start_ticks
from outlive.wire.clock import boot_s
from outlive.wire.names import RunFiles, write_aside

TICK_S = 0.5
TURN_TICK_S = 0.05
"""Between an attempt's end and what follows it."""
RESERVE_EVERY_S = 30.0
ERR_CAP_BYTES = 1 << 20


class Supervisor:
    """Ties the parts together; owns the loop."""

    def __init__(self, run_dir: str, payload: Dict[str, Any]) -> None:
        self.context = Context(run_dir, payload)
        self.subreaper = set_subreaper()
        self.notifier = Notifier(self.context)
        self.life = Life(self.context, self.notifier.send)
        self.wake = Wake()
        self.tail = LogTail(self.context, self._first_line, self.wake.sleep)
        self.keep = Keep(self.context)
        self.durable = Durable(self.context)
        self.sampler = Sampler(self.context)
        self.watching = Watching(self.context, Alarms, self.notifier.send)
        self.life.finishing.copied_all = self._copied_all
        self.life.finishing.retain = self.keep.retain
        self.keep.frozen = lambda: self.life.finishing.under_way
        self.life.lagging = lambda: self.tail.lagging
        self.life.settled = self.keep.settle
        self.pipe = PayloadPipe(self.context.run)
        self._points: List[Dict[str, Any]] = []
        self._early: List[Dict[str, Any]] = []
        """Points that were read between two rounds."""
        self._reserve_b = 0.0
        self._attempt_seen = self.context.view.attempt.number if self.context.view.attempt else 0

    # -- wiring -----------------------------------------------------------------------------------

    def _first_line(self, text: str) -> None:
        self.context.record("first_line", text=text)

    def _copied_all(self) -> bool:
        if not self.durable.wanted:
            return True
        manifest = read_json(self.context.run.roster)
        if manifest is None:
            return False
        return self.durable.copy("roster", manifest["entries"])

    def reap(self) -> None:
        """Collect ended children; those of a killed keeper arrive here because we are a subreaper."""
        watched = self._popen_pids()
        while True:
            try:
                # WNOWAIT first: children of Crew are collected by their own Popen
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if info is None or info.si_pid == 0:
                return
            if info.si_pid in watched:
                return  # its Popen collects it in this same tick; others follow in the next
            _pid, status = os.waitpid(info.si_pid, 0)
            self.life.reaped[info.si_pid] = status

    def _popen_pids(self) -> List[int]:
        pids = self.sampler.pids()
        for crew in (self.life.finishing.crew, self.keep.crew, self.durable.crew, self.notifier.crew):
            pids += crew.pids()
        return pids

    # -- requests ---------------------------------------------------------------------------------

    def handlers(self) -> Dict[str, Any]:
        return {
            "stop": self.on_stop,
            "checkpoint": self.on_checkpoint,
            "extend": self.on_extend,
            "release": self.on_release,
            "retry": self.on_retry,
        }

    def on_stop(self, request: Dict[str, Any]) -> Dict[str, Any]:
        if self.context.view.ended:
            return {"ok": True, "text": "the run has already ended: " + self.context.view.state}
        grace_s = float(request.get("grace_s", self.context.limits["grace_s"]))
        self.life.ask_stop("asked", "asked by %s" % request.get("by", "a client"), grace_s)
        return {"ok": True, "text": "stopping: TERM now, KILL after %.0f s" % grace_s}

    def on_extend(self, request: Dict[str, Any]) -> Dict[str, Any]:
        view = self.context.view
        maximum: Optional[float] = float(request["max_s"]) if request.get("max_s") is not None else None
        if maximum is None and request.get("add_s") is not None and view.lease_max_s is not None:
            maximum = view.lease_max_s + float(request["add_s"])
        if maximum is None:
            return {"ok": False, "text": "this run has no lease; nothing ends it but itself"}
        self.context.record("lease", max_s=maximum, used_s=view.lease_used_s)
        return {"ok": True, "text": "the run may use %.0f s in all" % maximum}

    def on_checkpoint(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Ask the work for a save: by its control file, and by a signal only if the work catches it."""
        current = self.context.view.attempt
        if current is None or current.ended:
            return {"ok": False, "text": "nothing is running"}
        os.makedirs(self.context.run.control, exist_ok=True)
        write_aside(os.path.join(self.context.run.control, "checkpoint"), request["id"].encode("ascii"))
        name = self.context.spec["artifacts"]["signal"]
        if name:
            number = attempts.signal_number(name)
            catching = [p for p in self.life.members() if attempts.catches(p, number)]
            if catching:
                attempts.signal_members(catching, number)
                return {"ok": True, "text": "%s sent to %d process(es)" % (name, len(catching))}
            return {
                "ok": False,
                "text": "no process of the work handles %s; it was not sent, because it would kill it" % name,
            }
        return {
            "ok": True,
            "text": "asked through the control file; work that does not read it saves by its own cadence",
        }

    def on_release(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """End a hung process whose work is complete."""
        if self.context.view.state != "hung":
            return {"ok": False, "text": "the run is not hung"}
        self.life.ask_stop("hung", "the work is complete and its process would not end", 10.0)
        return {"ok": True, "text": "ending the hung process"}

    def on_retry(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Go on with an ended run, same spec."""
        if not self.context.view.ended:
            self.life.next_start_b = 0.0
            return {"ok": True, "text": "the run is going on"}
        if self.context.view.state == "succeeded":
            return {"ok": True, "text": "the run has succeeded; nothing to do"}
        if self.context.view.fenced is not None:
            return {"ok": False, "text": "the run moved away from this box"}
        self.context.record("resumed", by=request.get("by", "a client"))
        self.context.state("starting", "asked to go on")
        self.life.resumed()
        return {"ok": True, "text": "going on"}

    # -- the loop ---------------------------------------------------------------------------------

    def tick(self) -> None:
        """One round. A part that fails is reported and left for the next round; the others go on."""
        self._part("reap", self.reap)
        self._part("payload", self._take_payload)
        self._part("inbox", self._answer)
        self._part("log", self._read_log)
        self._part("life", self.life.tick)
        self._part("attempt", self._notice_attempt)
        self._part("cap", self._cap)
        self._part("checkpoints", self.keep.tick)
        self._part("copies", self.durable.tick)
        self._part("watching", self._watch)
        self._part("notices", self.notifier.tick)
        self._part("journal", self._tidy)

    def _part(self, name: str, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:
            # The run's supervision is worth more than any part of it: a full disk, a vanished file or a bug of ours in
            # one place must not end the stops, leases and retries of the others. It is said, once for each kind.
            where = traceback.extract_tb(error.__traceback__)[-1]
            why = "%s: %s (%s:%s)" % (type(error).__name__, error, os.path.basename(where.filename), where.lineno)
            if self.context.view.troubles.get(name) != why:
                traceback.print_exc()
                self.context.trouble(name, why)

    def _take_payload(self) -> None:
        payload = self.pipe.read()
        if payload is not None:
            self.context.payload = merge(self.context.payload, payload)
            if isinstance(payload.get("ask"), dict):
                inbox.carry_out(self.context, self.handlers(), payload["ask"])
            self.life.payload_came()

    def _answer(self) -> None:
        inbox.handle(self.context, self.handlers())

    def _read_log(self) -> None:
        self._points, self._early = self._early, []
        self._points += self.tail.tick()
        for point in self._points:
            self.keep.newest_metric.update(point)
            # before the decisions: an attempt that ended must be judged with its last step
            self.life.note(point)

    def _pause(self) -> None:
        self._watch_work()
        usual = min(TICK_S, float(self.context.limits["scan_s"]))
        soon = self.life.turning or self.wake.fresh
        self._early += self.tail.pause(min(usual, TURN_TICK_S) if soon else usual)

    def _watch_work(self) -> None:
        """Let the sleep end with the work."""
        current = self.context.view.attempt
        if current is None or current.ended or current.machine != self.context.machine:
            self.wake.forget()
        elif self.wake.watched != current.number:
            identity = attempts.work_identity(self.context, current.number)
            if identity is not None:
                self.wake.watch(current.number, identity["pid"], identity["start_ticks"])

    def _notice_attempt(self) -> None:
        current = self.context.view.attempt
        if current is not None and current.number != self._attempt_seen:
            self._attempt_seen = current.number
            self.tail.new_attempt()
            self.sampler.new_attempt()
            self.watching.new_attempt()

    def _cap(self) -> None:
        self.tail.enforce_cap(int(self.context.limits["log_cap_bytes"]))

    def _watch(self) -> None:
        current = self.context.view.attempt
        running = current is not None and not current.ended
        sample = self.sampler.tick(self.life.members if running else None)
        self.watching.tick(self._points, sample, running, self.tail, self.keep, self.sampler, self.life)

    def _tidy(self) -> None:
        """Write what a full disk refused, and take the reserve back when there is room again."""
        if self.context.flush() and boot_s() >= self._reserve_b and not self.context.view.ended:
            self._reserve_b = boot_s() + RESERVE_EVERY_S
            self.context.keep_reserve()

    def finished(self) -> bool:
        return self.context.view.ended and self.notifier.crew.idle and not self.context.unwritten

    def run(self) -> int:
        """Loop until the run has ended and everything about it is said."""
        while True:
            if self.context.view.ended:
                self._part("inbox", self._answer)
                self._part("notices", self._end_notice)
            while not self.finished():
                if not os.path.lexists(self.context.run.dir):
                    return 0  # somebody deleted the run under us: nothing is left to watch, and nobody to tell
                self.tick()
                self._part("pause", self._pause)
            self._part("inbox", self._answer)
            if self.context.view.ended and self._leave():
                # after everything is said and marked: nothing that follows may depend on this process
                self._part("then", lambda: then.carry_out(self.context))
                return 0

    def _end_notice(self) -> None:
        """Say the end again when a supervisor died between the end and its notice."""
        view = self.context.view
        if view.ended and not self.notifier.said("ended"):
            facts = {"state": view.state, "outcome": view.final_outcome}
            self.notifier.send("ended", "%s: %s" % (view.state, view.state_why), facts)

    def _leave(self) -> bool:
        """Remove what must not outlive the run and mark it as done. Returns whether that succeeded."""
        self.context.release_reserve()
        try:
            for name in (self.context.run.secrets, self.context.run.payload):
                if os.path.lexists(name):
                    os.unlink(name)
            write_aside(self.context.run.done, b"")
        except OSError as error:
            self.context.trouble("done", "the end could not be marked: %s" % error.strerror)
            time.sleep(5.0)
            return False
        self.sampler.stop()
        for crew in (self.keep.crew, self.durable.crew, self.life.finishing.crew):
            crew.kill()
        return True


def main(run_dir: str) -> int:
    """Read the payload from standard input, detach, supervise. Returns at once in the parent.

    When another supervisor already holds the lock, nothing happens.
    """
    payload = json.loads(sys.stdin.readline() or "{}")
    run = RunFiles(run_dir)
    if os.fork():
        return 0
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    err = os.open(run.supervisor_err, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.dup2(err, 2)
    _close_others()
    os.chdir("/")
    lock = lock_run(run)
    if lock is None:
        deliver(run, payload)  # two starts at one moment: what we were given must reach the one that lives
        os._exit(0)
    if lives_elsewhere(run):
        os._exit(0)
    if os.fstat(2).st_size > ERR_CAP_BYTES:
        os.ftruncate(2, 0)  # a supervisor that cannot start is started again and again
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a session's end must not end us; children reset it
    try:
        write_aside(run.supervisor, ("%d %s\n" % (os.getpid(), start_ticks(os.getpid()) or 0)).encode("ascii"))
    except OSError as error:
        sys.stderr.write("%s: %s\n" % (run.supervisor, error))  # keepers look at it, but the lock is what counts
    if os.path.exists(run.done):
        os.unlink(run.done)
    while True:
        supervisor = Supervisor(run_dir, payload)
        if not supervisor.context.view.ended:  # else its journal may be home already: it stays as it is
            supervisor.context.record(
                "supervisor",
                pid=os.getpid(),
                subreaper=supervisor.subreaper,
                python=sys.version.split()[0],
                at_b=boot_s(),
            )
        supervisor.run()
        os.close(lock)
        # a request that came between our last look and this moment has seen our lock and started nobody
        if not inbox.pending(supervisor.context):
            os._exit(0)
        again = lock_run(run)
        if again is None:
            os._exit(0)
        lock, payload = again, supervisor.context.payload


def _close_others() -> None:
    """Close what the caller left open (an ssh channel that stays open would hold its session)."""
    try:
        fds = [int(n) for n in os.listdir("/proc/self/fd")]
    except OSError:
        fds = list(range(3, 256))
    for fd in fds:
        if fd > 2:
            try:
                os.close(fd)
            except OSError:
                continue
