"""The life of one run on the box: stages, attempts, retries, leases, stops, the end.

Every decision is made from evidence on disk and in /proc at this moment, so a supervisor that was
killed and restarted decides the same as one that never died.
"""

import json
import os
import signal
from typing import Any, Callable, Dict, List, Optional

from outlive.diagnose.outcome import classify
from outlive.onbox import attempt as attempts
from outlive.onbox.context import NO_ROOM, Context, read_json
from outlive.onbox.finishing import Finishing
from outlive.onbox.judging import Seen, explained
from outlive.onbox.judging import evidence as gather
from outlive.onbox.prove import baseline
from outlive.onbox.sweep import Sweep
from outlive.probes.cgroup import cgroup
from outlive.probes.disk import disk
from outlive.wire.clock import boot_s
from outlive.wire.names import write_aside

SETUP = "setup"
START_LIMIT_S = 60.0
"""How long a launcher may take to record the work's identity before the attempt counts as not started."""
SETTLE_S = 60.0
"""How long the judgement of a dead attempt waits for its log to be read and its last checkpoint to be proved."""
LEFTOVER_GRACE_S = 10.0
SILENT_S = 30.0
"""A keeper that has not written its beat for so long guards nothing: it writes one every two seconds."""
TURN_S = 3.0
"""For so long after an attempt's end the next step of the run's life is not waited for: a GPU stands idle."""


class Life:
    """Decides and acts. ``tick`` is called about once a second and never blocks for long."""

    def __init__(self, context: Context, notify: Callable[[str, str, Dict[str, Any]], None]) -> None:
        self.context = context
        self.notify = notify
        self.lagging: Callable[[], bool] = lambda: False
        """Set by the supervisor: whether there is log that nobody has read yet."""
        self.settled: Callable[[], bool] = lambda: True
        """Set by the supervisor: whether every checkpoint that the dead work left is judged."""
        self.reaped: Dict[int, int] = {}
        """Statuses of works that we reaped as subreaper: pid -> wait status."""
        self.gone_since_b: Optional[float] = None
        self.term_sent_b: Optional[float] = None
        self.kill_sent_b: Optional[float] = None
        self.next_start_b = 0.0
        self.seen = Seen()
        self.finishing = Finishing(context, notify)
        self._keeper_started_b: Optional[float] = None
        self._over_since_b: Optional[float] = None
        self._only_guarded = 0
        self._beat = (b"", 0.0)
        self._turn_until_b = 0.0
        self._sweep = Sweep()

    @property
    def turning(self) -> bool:
        """Whether an attempt has just ended and what follows it is due."""
        current = self.context.view.attempt
        due = current is not None and current.ended and not self.context.view.ended
        return due and self.next_start_b <= boot_s() < self._turn_until_b

    def note(self, point: Dict[str, Any]) -> None:
        """Take the step of a metric point; an attempt's end is judged with it."""
        if point.get("local"):  # counts within an epoch: it neither ends the run nor falls back
            return
        if point.get("step") is not None:
            self.seen.last_step = int(point["step"])
        if point.get("total") is not None:
            self.seen.total_steps = int(point["total"])

    # -- stages ---------------------------------------------------------------------------------

    def stages(self) -> List[Dict[str, Any]]:
        """Return the stages of this run on this box, set-up first unless it succeeded here before."""
        spec = self.context.spec
        stages = list(spec["stages"])
        if spec["setup"]:
            stages.insert(0, {"name": SETUP, "run": spec["setup"]["run"], "produces": [], "always": False})
        return stages

    def next_stage(self) -> Optional[Dict[str, Any]]:
        """Return the stage to run now, or None when none is left. After a failure only `always` stages remain."""
        view = self.context.view
        failed = bool(view.stage_failed) or view.run_stop() is not None
        for stage in self.stages():
            if stage["name"] in view.stages_done or stage["name"] in view.stages_failed:
                continue
            if stage["name"] == SETUP and os.path.exists(self._setup_mark()):
                continue
            if failed and not stage.get("always"):
                continue
            return stage
        return None

    def _setup_mark(self) -> str:
        return os.path.join(self.context.box.setup, self.context.spec["setup"]["digest"])

    # -- one tick -------------------------------------------------------------------------------

    def tick(self) -> None:
        view = self.context.view
        self.finishing.crew.tick()
        if view.ended:
            return
        self._check_fence()
        current = view.attempt
        if current is not None and not current.ended:
            self._tick_attempt()
        elif not self._swept():
            return
        elif self.finishing.under_way:
            self.finishing.tick()
        else:
            self._tick_between()

    def _check_fence(self) -> None:
        """A run that moved away must not go on here: the fence names the attempt that took over."""
        if self.context.view.fenced is None:
            fence = read_json(self.context.run.fence)
            if fence is not None:
                self.context.record("fenced", by=fence)
                self.ask_stop("fenced", "the run moved to %s" % fence.get("box", "another box"), 0.0)

    # -- while an attempt lives -------------------------------------------------------------------

    def _tick_attempt(self) -> None:
        current = self.context.view.attempt
        assert current is not None
        if current.machine != self.context.machine:
            self._over(None, None)
            return
        status = self._reap_to_record(current.number)
        if status is not None:
            self._over(status, None)
            return
        record = attempts.exit_record(self.context, current.number)
        if record is not None:
            uptime_s = record.get("uptime_s")
            self._over(int(record["status"]), float(uptime_s) if uptime_s else None)
            return
        alive = attempts.work_alive(self.context, current.number)
        if alive:
            self.gone_since_b = None
            self._guard_the_guard(current.number)
            self._tick_lease(current.started_b)
            self._tick_stop()
            return
        # no record and no process: give a living keeper time to write, then call it an end unseen
        if self.gone_since_b is None:
            self.gone_since_b = boot_s()
        waited = boot_s() - self.gone_since_b
        keeper = attempts.keeper_alive(self.context, current.number)
        if alive is None and keeper and waited < START_LIMIT_S:
            self._tick_stop()
            return
        # a keeper that was started to guard only will never write a record
        if waited > (10.0 if keeper and self._only_guarded != current.number else 3.0):
            self._over(None, None)

    def _over(self, status: Optional[int], uptime_s: Optional[float]) -> None:
        """The work is dead. Judge it as soon as its last words are read and its last checkpoint is proved."""
        if self._over_since_b is None:
            self._over_since_b = boot_s()
        if boot_s() - self._over_since_b < SETTLE_S and (self.lagging() or not self.settled()):
            return
        self._end_attempt(status, uptime_s)

    def _swept(self) -> bool:
        """Whether nothing of the last attempt is alive any more: daemons hold the log, files and perhaps the GPU."""
        current = self.context.view.attempt
        if current is None or current.machine != self.context.machine or self._sweep.done_for == current.number:
            return True
        pids = attempts.attempt_members(self.context, current.number, current.uuid)
        grace_s = min(float(self.context.limits["grace_s"]), LEFTOVER_GRACE_S)
        done = self._sweep.tick(current.number, pids, grace_s)
        if done and pids:
            self.context.trouble(
                "leftovers", "%d process(es) of attempt %d cannot be ended" % (len(pids), current.number)
            )
        return done

    def _guard_the_guard(self, number: int) -> None:
        """When the keeper is gone or silent and the work is not, start one that guards us."""
        now = boot_s()
        beat = attempts.beat(self.context, number)
        if beat != self._beat[0]:
            self._beat = (beat, now)
        # where no process may be started its guarding half ends, and the half that waits for the work lives on
        silent = bool(beat) and now - self._beat[1] > SILENT_S
        if attempts.keeper_alive(self.context, number) and not silent:
            return
        if self._keeper_started_b is None or now - self._keeper_started_b > 10.0:
            self._keeper_started_b = now
            self._beat = (beat, now)
            self._only_guarded = number
            attempts.start_keeper(self.context, "guard", number)

    def _reap_to_record(self, number: int) -> Optional[int]:
        """Turn a status that we reaped ourselves into the attempt's exit record; return it if that had no room."""
        identity = attempts.work_identity(self.context, number)
        if identity is None or identity["pid"] not in self.reaped or attempts.work_alive(self.context, number):
            return None
        if attempts.exit_record(self.context, number) is not None:
            return None
        raw = self.reaped[identity["pid"]]
        status = 128 + os.WTERMSIG(raw) if os.WIFSIGNALED(raw) else os.WEXITSTATUS(raw)
        record = {"status": status, "by": "supervisor", "uptime_s": boot_s()}
        try:
            write_aside(self.context.run.attempt(number).exit, json.dumps(record).encode("ascii"))
        except OSError:
            return status  # a full disk: the status is still in our hands
        return None

    def members(self) -> List[int]:
        """Return the living processes of the current attempt."""
        current = self.context.view.attempt
        if current is None or current.ended:
            return []
        return attempts.attempt_members(self.context, current.number, current.uuid)

    # -- stopping ---------------------------------------------------------------------------------

    def ask_stop(self, reason: str, sentence: str, grace_s: float) -> None:
        """Journal that we end the work, before any signal is sent. Repeating it changes nothing.

        An `always` stage that was started after a stop is ended by asking once more.
        """
        view = self.context.view
        running = view.attempt is not None and not view.attempt.ended
        if view.stop_asked is None or (running and view.stopping() is None):
            self.context.record("stop_asked", reason=reason, why=sentence, grace_s=grace_s)

    def _tick_stop(self) -> None:
        asked = self.context.view.stopping()
        if asked is None:
            return
        now = boot_s()
        pids = self.members()
        if self.term_sent_b is None:
            self.term_sent_b = now
            attempts.signal_members(pids, signal.SIGTERM)
        elif now - self.term_sent_b >= float(asked["grace_s"]):
            if self.kill_sent_b is None or now - self.kill_sent_b > 2.0:
                self.kill_sent_b = now
                attempts.signal_members(pids, signal.SIGKILL)

    def _tick_lease(self, started_b: float) -> None:
        view = self.context.view
        if view.lease_max_s is None or view.stopping() is not None:
            return
        used = view.lease_used_s + (boot_s() - started_b)
        reserve = min(float(self.context.spec["lease"]["reserve_s"]), 0.2 * view.lease_max_s)
        if view.stop_asked is not None:
            reserve = 0.0  # an `always` stage after a stop is what the reserve is for
        if used >= view.lease_max_s - reserve:
            self.ask_stop(
                "lease",
                "the run's lease of %.0f s is used up (%.0f s kept for the last save)" % (view.lease_max_s, reserve),
                min(reserve, float(self.context.limits["grace_s"])),
            )

    # -- the end of an attempt --------------------------------------------------------------------

    def _end_attempt(self, status: Optional[int], uptime_s: Optional[float]) -> None:
        context = self.context
        current = context.view.attempt
        assert current is not None
        evidence = gather(context, self.stages(), status, self.seen)
        outcome = explained(context, classify(evidence), evidence.exit_seen)
        elapsed = 0.0
        if current.machine == context.machine:
            elapsed = max(0.0, boot_s() - current.started_b)
            if uptime_s is not None and 0.0 <= uptime_s - current.started_b < elapsed:
                elapsed = uptime_s - current.started_b  # it ended while nobody of us was there to see it
        context.record(
            "attempt_ended",
            attempt=current.number,
            stage=current.stage,
            outcome=outcome.to_wire(),
            evidence=evidence.to_wire(),
            last_step=self.seen.last_step,
            checkpoints=current.checkpoints,
            lease_used_s=context.view.lease_used_s + elapsed,
        )
        remedy = outcome.remedy
        if outcome.cls == "unknown" and not evidence.exit_seen and not evidence.fatal_lines:
            # Keeper and supervisor died with the work, so nobody saw its end, and nothing says that it erred. It goes
            # on from its newest checkpoint, within the same budget as after a kill that was seen.
            remedy = "resume"
        self._after(current.stage, outcome.cls, remedy, outcome.sentence)
        self.term_sent_b = self.kill_sent_b = self.gone_since_b = self._over_since_b = None
        self.seen = Seen()
        self._turn_until_b = boot_s() + TURN_S

    def _after(self, stage: str, cls: str, remedy: str, sentence: str) -> None:
        """Decide what follows an attempt's end, from its class alone."""
        context = self.context
        view = context.view
        if cls in ("succeeded", "hung_exit"):
            if stage == SETUP:
                try:
                    os.makedirs(context.box.setup, exist_ok=True)
                    write_aside(self._setup_mark(), b"")
                except OSError as error:
                    context.trouble(
                        "setup", "its mark could not be written, so the next run does it again: %s" % error.strerror
                    )
            context.record("stage_done", stage=stage)
            return
        if remedy == "resume" and view.run_stop() is None:
            limit = int(context.spec["retry"]["max"])
            if view.retries > limit:
                self._fail(stage, "%s; %d attempts in a row without a new checkpoint" % (sentence, view.retries))
            elif self._same_step_twice():
                self._fail(
                    stage, "%s; two attempts ended at the same step %s" % (sentence, view.attempts[-1].last_step)
                )
            else:
                wait = float(context.limits["retry_wait_s"]) * (2 ** max(0, view.retries - 1))
                self.next_start_b = boot_s() + min(wait, 300.0)
                context.state("preempted", sentence)
            return
        if remedy == "clean" and view.run_stop() is None:
            context.state("waiting", sentence + "; it goes on by itself when there is room")
            self.next_start_b = boot_s() + 5.0
            self.notify("disk", context.view.state_why, {"stage": stage})
            return
        self._fail(stage, sentence)

    def _same_step_twice(self) -> bool:
        ended = [
            a
            for a in self.context.view.attempts
            if a.stage == self.context.view.attempts[-1].stage and a.n > self.context.view.resumed_n
        ]
        if len(ended) < 2 or ended[-1].last_step is None:
            return False
        # a machine that went away says nothing about the step it was at
        if any((a.outcome or {}).get("cls") in ("reboot", "preempted", "walltime") for a in ended[-2:]):
            return False
        return ended[-1].last_step == ended[-2].last_step and ended[-1].checkpoints == 0

    def _fail(self, stage: str, sentence: str) -> None:
        current = self.context.view.attempt
        outcome = dict(current.outcome or {}) if current is not None and current.stage == stage else {}
        outcome["sentence"] = sentence
        self.context.record("stage_failed", stage=stage, outcome=outcome)

    # -- between attempts ---------------------------------------------------------------------------

    def _tick_between(self) -> None:
        context = self.context
        view = context.view
        stopping = view.run_stop() is not None
        if boot_s() < self.next_start_b and not stopping:
            return
        stage = self.next_stage()
        if stage is None:
            self.finishing.begin()
            return
        if not stopping and view.lease_max_s is not None and view.lease_used_s >= view.lease_max_s:
            self.ask_stop("lease", "the run's lease is used up", 0.0)
            return
        refusal = self._why_not_now()
        if refusal and stopping:
            self._fail(stage["name"], "not started after the stop: " + refusal)
            return
        if refusal:
            # the numbers in the sentence move with every look; one record says it
            if (view.state, view.state_why.split(":")[0]) != ("waiting", refusal.split(":")[0]):
                context.state("waiting", refusal)
            self.next_start_b = boot_s() + min(5.0, float(context.limits["retry_wait_s"]))
            return
        try:
            if not os.path.exists(context.run.baseline):
                write_aside(context.run.baseline, json.dumps(baseline(context.run.work)).encode("utf-8"))
            self.reaped.clear()
            number = attempts.start_attempt(context, stage["name"], self.stages())
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            context.state("waiting", "disk: the next start could not be written down: %s" % error.strerror)
            self.next_start_b = boot_s() + min(5.0, float(context.limits["retry_wait_s"]))
            return
        self._keeper_started_b = boot_s()
        context.state("starting", "attempt %d of stage %s" % (number, stage["name"]))

    def _why_not_now(self) -> str:
        """Return what the next start has to wait for, or an empty string."""
        held = self.context.payload.get("secrets") or {}
        lacking = [n for n in self.context.spec["secrets"]["names"] if n not in held]
        if lacking:
            return (
                "secrets are gone from memory: %s; any client's `outlive run` or `watch` brings them again"
                % ", ".join(lacking)
            )
        return self.disk_gate() or self.process_gate()

    def process_gate(self) -> str:
        """Return why no process can be started, or an empty string: an attempt that cannot begin is none."""
        if attempts.room_for_processes():
            return ""
        limits = cgroup()
        told = " (%s of %s in its control group)" % (limits.pids_used, limits.pids_limit) if limits.pids_limit else ""
        return "processes: this box starts no more of them%s; it goes on by itself when some have ended" % told

    def payload_came(self) -> None:
        """Secrets arrived: what waited for them need not wait longer."""
        if self.context.view.state == "waiting":
            self.next_start_b = 0.0

    def disk_gate(self) -> str:
        """Return why the disk does not have room for another stage, or an empty string.

        What must be free: what the job declared, and room for one more checkpoint like the newest.
        """
        space = disk(self.context.run.work)
        newest = self.context.view.newest_checkpoint()
        need = int(self.context.spec["resources"]["disk_bytes"]) + int(newest["bytes"] if newest else 0) + (4 << 20)
        inodes = int(self.context.spec["resources"]["disk_inodes"]) + 64
        if space.free_bytes is not None and space.free_bytes < need:
            return "disk: %d bytes free at %s, %d needed before the next start; free space or enlarge the disk" % (
                space.free_bytes,
                space.mount,
                need,
            )
        if space.free_inodes is not None and space.free_inodes < inodes:
            return "disk: %d inodes free at %s, %d needed before the next start; remove small files" % (
                space.free_inodes,
                space.mount,
                inodes,
            )
        return ""

    def resumed(self) -> None:
        """Forget the end of an ended run that a person asked to go on."""
        self.finishing.forget()
        self.next_start_b = 0.0
