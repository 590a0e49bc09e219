"""The three state tables and the outcome classes, as data.

Each move names the evidence that allows it; ``runs`` and the supervisor both read these tables,
so that a word on the screen and a word in the journal cannot mean two things.
"""

from typing import Dict, FrozenSet, Tuple

RUN_STATES: Dict[str, str] = {
    "queued": "accepted by a queue, no process yet",
    "starting": "the attempt's process is being started, no first line yet",
    "running": "the work is alive and something advances",
    "stalled": "the work is alive and nothing has advanced for the stall limit",
    "hung": "the work is complete, its process will not end",
    "waiting": "nothing runs until something arrives: secrets, a person's word, a claim",
    "finishing": "the last stage ended; digests and copies are in progress",
    "succeeded": "exit status 0 and every artifact is there and passes its check",
    "suspect": "exit status 0, but artifacts are missing or fail their check",
    "failed": "ended with an error whose class is not resumed",
    "preempted": "taken away by the platform or the scheduler; will resume",
    "stopped": "ended because we were asked to",
    "unknown": "the evidence to say more is missing",
}

RUN_ENDED: FrozenSet[str] = frozenset({"succeeded", "suspect", "failed", "stopped"})
"""States after which the supervisor starts no further attempt."""

RUN_MOVES: Tuple[Tuple[str, str, str], ...] = (
    ("queued", "starting", "the scheduler started the work, or our keeper did"),
    ("queued", "waiting", "secrets are gone or a claim is missing"),
    ("queued", "failed", "the scheduler's word: it will never start this"),
    ("queued", "stopped", "our own stop is in the journal; it never started"),
    ("starting", "running", "first line, metric, artifact or CPU time of the work"),
    ("starting", "failed", "exit record of a class that is not resumed"),
    ("starting", "finishing", "exit record, last stage"),
    ("starting", "waiting", "secrets are gone, the disk gate is red, or a claim is missing"),
    ("starting", "stopped", "our own stop is in the journal"),
    ("starting", "preempted", "machine identity changed, scheduler word or unexplained kill"),
    ("starting", "stalled", "no sign of life since the start for the stall limit"),
    ("starting", "hung", "artifacts complete, process alive without CPU for the limit"),
    ("running", "stalled", "no log line, metric, artifact or CPU time for the stall limit"),
    ("running", "hung", "artifacts complete or last step reached, process alive without CPU for the limit"),
    ("running", "finishing", "exit record 0, last stage"),
    ("running", "starting", "exit record, another stage or attempt follows"),
    ("running", "failed", "exit record of a class that is not resumed, or the retry budget is used up"),
    ("running", "preempted", "machine identity changed, scheduler word or unexplained kill"),
    ("running", "stopped", "our own stop is in the journal and the work is gone"),
    ("running", "waiting", "a class whose remedy is a person's word, or secrets are gone"),
    ("stalled", "running", "something advanced"),
    ("stalled", "hung", "artifacts complete or last step reached"),
    ("stalled", "finishing", "exit record 0, last stage"),
    ("stalled", "starting", "exit record, another stage or attempt follows"),
    ("stalled", "failed", "exit record of a class that is not resumed"),
    ("stalled", "preempted", "machine identity changed, scheduler word or unexplained kill"),
    ("stalled", "stopped", "our own stop is in the journal and the work is gone"),
    ("stalled", "waiting", "a class whose remedy is a person's word"),
    ("hung", "running", "something advanced"),
    ("hung", "finishing", "exit record, or we ended it after the artifacts were proved"),
    ("hung", "starting", "exit record, another stage or attempt follows"),
    ("hung", "failed", "exit record of a class that is not resumed"),
    ("hung", "stopped", "our own stop is in the journal and the work is gone"),
    ("preempted", "starting", "a supervisor starts the next attempt"),
    ("preempted", "queued", "the scheduler put it back into its queue"),
    ("preempted", "finishing", "our own stop is in the journal; what is left is digested and copied"),
    ("preempted", "waiting", "secrets are gone or a claim is missing"),
    ("preempted", "failed", "the retry budget is used up"),
    ("preempted", "stopped", "our own stop is in the journal"),
    ("waiting", "starting", "what was waited for arrived"),
    ("waiting", "queued", "what was waited for arrived, and a queue took it"),
    ("waiting", "finishing", "our own stop is in the journal; what is left is digested and copied"),
    ("waiting", "stopped", "our own stop is in the journal"),
    ("waiting", "failed", "the run lease ended while waiting"),
    ("finishing", "succeeded", "every roster entry proved, copies made where a safe place is set"),
    ("finishing", "suspect", "an artifact is missing or fails its check"),
    ("finishing", "failed", "an `always` stage ran after a failure that stays"),
    ("finishing", "stopped", "an `always` stage ran after our own stop"),
    ("failed", "starting", "a person asked to go on, same spec"),
    ("stopped", "starting", "a person asked to go on, same spec"),
    ("suspect", "starting", "a person asked to go on, same spec"),
    ("failed", "queued", "a person asked to go on, same spec, and a queue took it"),
    ("stopped", "queued", "a person asked to go on, same spec, and a queue took it"),
    ("suspect", "queued", "a person asked to go on, same spec, and a queue took it"),
    ("unknown", "running", "a fresh exchange shows the work alive"),
    ("unknown", "starting", "a supervisor starts the next attempt"),
    ("unknown", "finishing", "artifacts decide: complete"),
    ("unknown", "failed", "artifacts decide: incomplete, and the budget is used up"),
    ("unknown", "waiting", "a person has to say"),
    ("unknown", "stopped", "our own stop is in the journal"),
)

DELIVERY_STATES: Dict[str, str] = {
    "none": "no byte of the roster is outside the box",
    "partial": "some entries are in a safe place",
    "complete": "every entry is in a safe place with an equal digest",
    "proved": "complete, and each proved to the level that its type has",
}

DELIVERY_MOVES: Tuple[Tuple[str, str, str], ...] = (
    ("none", "partial", "first copy with an equal digest"),
    ("none", "complete", "all copies have equal digests"),
    ("partial", "complete", "all copies have equal digests"),
    ("complete", "proved", "every proof reaches the level asked"),
    ("complete", "partial", "the roster grew or changed"),
    ("proved", "partial", "the roster grew or changed"),
    ("partial", "none", "the copies are gone"),
)

BOX_STATES: Dict[str, str] = {
    "ready": "a fresh exchange answered our nonce",
    "unreachable": "no fresh exchange; says nothing about the box or its runs",
    "idle": "ready, and no attempt is alive on it; the meter runs",
    "stopping": "a stop or destroy was sent and is not yet confirmed",
    "stopped": "the platform's listing says it is parked",
    "gone": "the platform's own listing no longer has it, or the user said so (`forget`)",
    "unconfirmed": "the meter should have stopped; nothing could be read that says so",
}

BOX_MOVES: Tuple[Tuple[str, str, str], ...] = (
    ("ready", "unreachable", "a fresh exchange failed"),
    ("ready", "idle", "poll: no live attempt"),
    ("idle", "ready", "poll: a live attempt"),
    ("idle", "unreachable", "a fresh exchange failed"),
    ("unreachable", "ready", "a fresh exchange answered our nonce"),
    ("unreachable", "idle", "a fresh exchange answered; no live attempt"),
    ("unreachable", "gone", "the platform's listing, or the user's word"),
    ("ready", "stopping", "the gate passed, an approval was used, the verb was sent"),
    ("idle", "stopping", "the gate passed, an approval was used, the verb was sent"),
    ("stopping", "stopped", "the platform's listing"),
    ("stopping", "gone", "the platform's listing, or the user's word"),
    ("stopping", "unconfirmed", "no listing to read, or it does not answer"),
    ("unconfirmed", "stopped", "the platform's listing, or the user's recorded word"),
    ("unconfirmed", "gone", "the platform's listing, or the user's recorded word"),
    ("unconfirmed", "ready", "a fresh exchange answered our nonce"),
    ("stopped", "ready", "a fresh exchange answered our nonce"),
    ("stopped", "gone", "the platform's listing, or the user's word"),
)

REMEDIES: Dict[str, str] = {
    "none": "nothing to mend",
    "resume": "same spec, newest good checkpoint, bounded retries",
    "clean": "free space by value, then resume",
    "fix": "a person changes something, then `run --from`",
    "move": "another box, with the newest proved checkpoint",
    "ask": "keep the last good state and ask",
}

OUTCOME_CLASSES: Dict[str, str] = {
    "succeeded": "none",
    "stopped": "none",
    "hung_exit": "none",
    "suspect": "ask",
    "preempted": "resume",
    "reboot": "resume",
    "walltime": "resume",
    "hangup": "resume",
    "network": "resume",
    "killed_unexplained": "resume",
    "disk_bytes": "clean",
    "disk_inodes": "clean",
    "oom_host": "fix",
    "oom_gpu": "fix",
    "code": "fix",
    "config": "fix",
    "command_missing": "fix",
    "gpu_fault": "move",
    "driver": "move",
    "nan": "ask",
    "lease": "ask",
    "unknown": "ask",
}
"""Outcome class -> its one remedy."""


def move_allowed(moves: Tuple[Tuple[str, str, str], ...], old: str, new: str) -> bool:
    """Return whether the table has the move. Staying is always allowed."""
    return old == new or any(a == old and b == new for a, b, _ in moves)
