"""What the run says: lines a person reads, metrics.jsonl for programs, trackers if asked, training_status.md."""

import json
import os
import time

PEAK_FLOPS = {  # dense 16-bit tensor throughput by a word of the device's name, from the makers' data sheets
    "H200": 989e12, "H100 PCIe": 756e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12, "A10": 125e12,
    "A6000": 155e12, "4090": 165e12, "3090": 71e12, "V100": 125e12, "T4": 65e12, "B200": 2250e12,
}  # fmt: skip


def peak_flops(device_name):
    """Return the device's peak in FLOP/s, None where it is not known (a share of nothing is not printed)."""
    return next((peak for word, peak in PEAK_FLOPS.items() if word in device_name), None)


def write_aside(path, text):
    """Replace a file at once: a reader sees the old one or the new one."""
    with open(path + ".tmp", "w", encoding="utf-8") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(path + ".tmp", path)


class RunLog:
    """Writes on rank 0 only. ``tracker`` is none, tensorboard, wandb or trackio."""

    def __init__(self, out_dir, name, config, phases, tracker="none", rank=0):
        self.out_dir, self.phases, self.rank = out_dir, phases, rank
        self.latest, self.risks, self.first = {}, {}, None
        self.tracker = None
        if rank:
            return
        os.makedirs(out_dir, exist_ok=True)
        self.file = open(os.path.join(out_dir, "metrics.jsonl"), "a", encoding="utf-8")
        id_path = os.path.join(out_dir, "run_id")  # one id for all attempts: trackers draw one line
        if not os.path.exists(id_path):
            write_aside(id_path, os.environ.get("OUTLIVE_RUN") or f"{name}-{int(time.time())}")
        with open(id_path, encoding="utf-8") as handle:
            self.run_id = handle.read().strip()
        if tracker == "tensorboard":
            from torch.utils.tensorboard import SummaryWriter

            self.tracker = SummaryWriter(os.path.join(out_dir, "tensorboard"))
        elif tracker in ("wandb", "trackio"):
            module = __import__(tracker)
            more = {"id": self.run_id, "resume": "allow"} if tracker == "wandb" else {"resume": "allow"}
            self.tracker = module.init(project=name, name=self.run_id, config=config, **more)

    def say(self, text):
        """Print a line on rank 0."""
        if not self.rank:
            print(text, flush=True)

    def event(self, event, step, **values):
        """Record one event: train, eval, checkpoint, phase, resume, divergence, end."""
        if self.rank:
            return
        row = {"event": event, "step": step, "time": round(time.time(), 3), **values}
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()
        numbers = {key: value for key, value in values.items() if isinstance(value, (int, float))}
        if event in ("train", "eval"):
            self.latest.update(numbers, step=step)
            if self.first is None:
                self.first = (step, time.monotonic())
        if self.tracker is None or event not in ("train", "eval"):
            return
        if hasattr(self.tracker, "add_scalar"):
            for key, value in numbers.items():
                self.tracker.add_scalar(f"{event}/{key}", value, step)
        else:
            self.tracker.log({f"{event}/{key}": value for key, value in numbers.items()}, step=step)

    def train(self, step, loss, lr, grad_norm, tokens_per_s, mfu=None, **more):
        """One line and one record for a training step."""
        phase = self.phases.phases[self.phases.index(step - 1)]["name"]
        share = "" if mfu is None else f" | mfu {100 * mfu:.1f}%"
        self.say(
            f"step {step}/{self.phases.total} | phase {phase} | loss {loss:.4f} | lr {lr:.3e} | "
            f"grad_norm {grad_norm:.3f} | tokens/s {tokens_per_s:,.0f}{share}"
        )
        values = {"loss": loss, "lr": lr, "grad_norm": grad_norm, "tokens_per_s": tokens_per_s, "phase": phase}
        self.event("train", step, **values, **({} if mfu is None else {"mfu": mfu}), **more)

    def risk(self, name, text):
        """Note a risk by name; an empty text takes it away."""
        self.risks.pop(name, None)
        if text:
            self.risks[name] = text

    def status(self, state, step, checkpoint="", val_loss=None):
        """Replace training_status.md."""
        if self.rank:
            return
        now, phases = self.latest, self.phases
        index = phases.index(min(step, phases.total - 1))
        left = "unknown"
        if self.first and step > self.first[0]:
            left_s = (phases.total - step) * (time.monotonic() - self.first[1]) / (step - self.first[0])
            left = f"{left_s / 3600:.1f} h" if left_s > 5400 else f"{left_s / 60:.1f} min"
        if val_loss is not None:
            now["val_loss"] = val_loss
        rows = [(key, f"{now[key]:.6g}") for key in ("loss", "val_loss", "lr", "grad_norm", "tokens_per_s", "mfu")
                if key in now]  # fmt: skip
        text = [
            f"# Training status: {state}", "",
            f"- step {step} of {phases.total} ({100 * step / phases.total:.0f} %)",
            f"- phase {index + 1} of {len(phases.phases)}: {phases.phases[index]['name']}, steps "
            f"{phases.begin(index)} to {phases.ends[index]}",
            f"- time left: {'none' if state == 'finished' else left}",
            f"- newest checkpoint: {checkpoint or 'none yet'}",
            f"- written: {time.strftime('%Y-%m-%d %H:%M:%S')}", "",
            "| metric | now |", "|---|---:|", *[f"| {key} | {value} |" for key, value in rows], "",
            "## Risks", "", *([f"- {text}" for text in self.risks.values()] or ["- none seen"]), "",
        ]  # fmt: skip
        write_aside(os.path.join(self.out_dir, "training_status.md"), "\n".join(text))

    def close(self):
        """Close what is open."""
        if self.rank:
            return
        self.file.close()
        for name in ("close", "finish"):
            if hasattr(self.tracker, name):
                getattr(self.tracker, name)()
                break
