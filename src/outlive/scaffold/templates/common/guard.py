"""Stops a run that has gone wrong, before a bad state is saved, and says one way on."""

import json
import math
import os
import shutil
import sys
import time

from runlog import write_aside

STOPPED = 3
"""Exit status of a run that stopped by itself and waits for a person."""


class Diverged(Exception):
    """The loss is not finite, or explodes. ``onset`` is the first bad step."""

    def __init__(self, why, onset, mitigation):
        super().__init__(why)
        self.why, self.onset, self.mitigation = why, onset, mitigation


class Guard:
    """Looks at each step's loss and gradient norm before the optimizer may use them."""

    def __init__(self, factor=3.0, patience=20, max_skipped=25, best=None):
        self.factor, self.patience, self.max_skipped = factor, patience, max_skipped
        self.smooth, self.best, self.high, self.onset, self.skipped = None, best, 0, 0, 0

    def look(self, step, loss, grad_norm, scaled=False):
        """Raise Diverged if the run cannot go on. With a loss scaler, infinite gradients are a skipped step."""
        if not math.isfinite(loss):
            raise Diverged(f"the loss is {loss} at step {step}", step, "skip the data of this step, or halve lr.peak")
        if not math.isfinite(grad_norm):
            self.skipped += 1
            if not scaled:
                raise Diverged(f"the gradient norm is {grad_norm} at step {step}", step, "skip the data, or halve lr")
            if self.skipped >= self.max_skipped:
                raise Diverged(f"{self.skipped} steps in a row had infinite gradients", step, "use bf16, or halve lr")
            return
        self.skipped = 0
        self.smooth = loss if self.smooth is None else 0.9 * self.smooth + 0.1 * loss
        self.best = self.smooth if self.best is None else min(self.best, self.smooth)
        if self.smooth > self.factor * max(self.best, 0.05):
            self.high += 1
            self.onset = self.onset or step
            if self.high >= self.patience:
                raise Diverged(
                    f"the loss is {self.smooth:.3f}, over {self.factor:g} times its best ({self.best:.3f}) for"
                    f" {self.high} steps", self.onset, "halve lr.peak and go back before the rise",
                )  # fmt: skip
        else:
            self.high, self.onset = 0, 0

    def state_dict(self):
        """Return the plain state, for the checkpoint."""
        return {"smooth": self.smooth, "best": self.best, "high": self.high, "onset": self.onset}

    def load_state_dict(self, state):
        """Take the state of a checkpoint."""
        self.smooth, self.best = state.get("smooth"), state.get("best")
        self.high, self.onset = state.get("high", 0), state.get("onset", 0)


def steps_kept(checkpoints):
    """Return {step: directory} of the committed checkpoints in a folder."""
    found = {}
    for name in sorted(os.listdir(checkpoints)) if os.path.isdir(checkpoints) else []:
        if name.startswith("step-") and os.path.exists(os.path.join(checkpoints, name, "checkpoint.json")):
            found[step_of(os.path.join(checkpoints, name))] = os.path.join(checkpoints, name)
    return found


def step_of(folder):
    """Return the step of a committed checkpoint's folder."""
    with open(os.path.join(folder, "checkpoint.json"), encoding="utf-8") as handle:
        return int(json.load(handle)["step"])


def newest(checkpoints):
    """Return the name of the newest committed checkpoint, "" if there is none."""
    kept = steps_kept(checkpoints)
    return os.path.basename(kept[max(kept)]) if kept else ""


def stop(log, out_dir, checkpoints, step, why, onset, mitigation, command=""):
    """Write divergence.json and the status, print what to type, return the exit status."""
    before = [kept for kept in sorted(steps_kept(checkpoints)) if kept < onset]
    back = before[-1] if before else 0
    command = command or f"python train.py --roll-back {back} --skip-window {max(1, step - back)}"
    proposal = {"step": step, "why": why, "onset_step": onset, "resume_step": back, "mitigation": mitigation,
                "command": command, "time": round(time.time(), 3)}  # fmt: skip
    if not log.rank:
        write_aside(os.path.join(out_dir, "divergence.json"), json.dumps(proposal, indent=1) + "\n")
    log.event("divergence", step, why=why, resume_step=back, mitigation=mitigation)
    log.risk("divergence", f"stopped: {why}. Resume point before it: step {back}. Proposed: {mitigation}")
    log.status("stopped, waits for a person", step, str(back))
    log.say(f"stopped at step {step}: {why}\n  resume point before it: step {back}\n  proposed: {mitigation}\n"
            f"  to go back and skip the data in between: {command}")  # fmt: skip
    return STOPPED


def roll_back(out_dir, checkpoints, step, skip):
    """Set aside every checkpoint after ``step`` and record that ``skip`` steps of data are passed over there."""
    kept = steps_kept(checkpoints)
    if step and step not in kept:
        sys.exit(f"there is no checkpoint of step {step}; there are: {', '.join(map(str, sorted(kept))) or 'none'}")
    aside = os.path.join(out_dir, f"rolled-back-{time.strftime('%Y%m%d-%H%M%S')}")
    for later in [number for number in kept if number > step]:
        os.makedirs(aside, exist_ok=True)
        shutil.move(kept[later], aside)
    index = os.path.join(checkpoints, "checkpoints_index.json")
    if os.path.exists(index):
        os.remove(index)  # made again from what is there
    path = os.path.join(out_dir, "interventions.json")
    done = interventions(out_dir)
    done.append({"step": step, "skip_steps": skip, "time": round(time.time(), 3), "set_aside": aside})
    write_aside(path, json.dumps(done, indent=1) + "\n")
    return aside


def interventions(out_dir):
    """Return the recorded interventions, oldest first."""
    path = os.path.join(out_dir, "interventions.json")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as handle:
        return list(json.load(handle))


def data_step(step, done):
    """Return whose data step ``step`` trains on, after the windows that were skipped."""
    return step + sum(one["skip_steps"] for one in done if one["step"] <= step)
