"""Train with transformers' Trainer, in phases, so that it can be killed at any moment and goes on from its checkpoint.

    python train.py                                      one process, GPU if there is one
    torchrun --standalone --nproc-per-node 8 train.py    one process for each GPU
    python train.py --limit-batches 2                    does it run at all?
    python train.py --overfit                            one batch again and again: the loss must go to nearly 0

The same command starts and resumes. Settings are in training_config.yaml; `--set section.key=value` changes one.
"""

import argparse
import hashlib
import json
import math
import os
import sys
import time

import torch

import config as configuration
import guard
from data import Mix
from runlog import RunLog, peak_flops, write_aside

try:
    from transformers import (
        AutoConfig, AutoModelForCausalLM, AutoTokenizer, PrinterCallback, Trainer, TrainerCallback, TrainingArguments,
        set_seed,
    )  # fmt: skip
except ImportError:
    sys.exit("train.py needs transformers: pip install -r requirements.txt")
try:
    from outlive.checkpoints.errors import CheckpointError
    from outlive.checkpoints.record import refuse_changed_config
    from outlive.checkpoints.retention import Keep
    from outlive.checkpoints.torch.hf import CommittedCheckpoints
except ImportError:
    sys.exit("train.py needs outlive's checkpoints: on a box `outlive run` brings them; elsewhere: pip install outlive")

DEFAULTS = {
    "model": {"name_or_path": None, "config": {}, "tokenizer": None, "block_size": 128},
    "train": {"seed": 1337, "global_batch": 16, "micro_batch": 8, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95,
              "grad_clip": 1.0, "precision": "auto", "compile": False, "fsdp": "", "recompute": False},
    "data": {"val_share": 0.1, "eval_every": 20, "eval_batches": 8},
    "checkpoint": {"every_steps": None, "every_s": None, "latest": 2, "best": 1, "milestones": [], "durable": None},
    "log": {"every": 5, "tracker": "none", "out_dir": "out", "name": "hf-trainer"},
    "guard": {"factor": 3.0, "patience": 20},
}  # fmt: skip


def arguments():
    """Return the command line's settings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="training_config.yaml")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--limit-batches", type=int, metavar="N", help="stop after N steps and evaluate on one batch")
    parser.add_argument("--overfit", action="store_true", help="train on the first batch only")
    parser.add_argument("--profile", metavar="FIRST:COUNT", help="write a Chrome trace of these steps to out_dir")
    parser.add_argument("--allow-restart", action="store_true", help="begin at 0 although no checkpoint is good")
    parser.add_argument(
        "--allow-change", action="append", default=[], metavar="SECTION.KEY", help="resume although changed"
    )
    parser.add_argument(
        "--roll-back", type=int, metavar="STEP", help="set aside all checkpoints after STEP, go on there"
    )
    parser.add_argument(
        "--skip-window", type=int, default=0, metavar="N", help="with --roll-back: pass over N steps of data"
    )
    return parser.parse_args()


def build(model):
    """Return the model: from a folder or a name, else from nothing by its native configuration."""
    if model["name_or_path"]:
        return AutoModelForCausalLM.from_pretrained(model["name_or_path"])
    native = dict(model["config"])
    if "file" in native:  # the model's own config.json, kept as it is
        return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(native["file"]))
    if "model_type" not in native:
        raise configuration.ConfigError("model needs name_or_path, or config with model_type (or file: config.json)")
    try:
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(**native))
    except ValueError as error:
        raise configuration.ConfigError(f"model.config: {error}") from error


def tokenized(path, name):
    """Return the tokens of a text file as a .bin32 file, made once."""
    if path.endswith((".bin", ".bin32")) or not name:
        return path
    made = f"{path}.{hashlib.sha256(name.encode()).hexdigest()[:8]}.bin32"
    if not os.path.exists(made):
        with open(path, encoding="utf-8") as handle:
            tokens = AutoTokenizer.from_pretrained(name)(handle.read())["input_ids"]
        with open(made + ".tmp", "wb") as out:
            out.write(torch.tensor(tokens, dtype=torch.int32).numpy().tobytes())
        os.replace(made + ".tmp", made)
    return made


class Sequences(torch.utils.data.Dataset):
    """Sequences in the order of their steps: number i belongs to step i // global_batch."""

    def __init__(self, mix, phases, global_batch, split, count, done=(), overfit=False):
        self.mix, self.phases, self.global_batch, self.split = mix, phases, global_batch, split
        self.count, self.done, self.overfit, self.phase = count, done, overfit, 0

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        phase, where = self.phase, 0
        if self.split == "train":
            step, number = divmod(number, self.global_batch)
            phase = self.phases.index(step)
            where = 0 if self.overfit else guard.data_step(step, self.done)
        tokens = self.mix.batch(self.split, phase, where, number, 1)[0][0]
        return {"input_ids": tokens, "labels": tokens}


class PhasedTrainer(Trainer):
    """Trainer with our order of data, our learning rate and a look at each loss."""

    phases = None

    def _get_train_sampler(self, *args, **kwargs):
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def create_scheduler(self, num_training_steps, optimizer=None):
        if self.lr_scheduler is None:
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer or self.optimizer, self.phases.lr)
        return self.lr_scheduler

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        if not math.isfinite(float(loss)):
            raise guard.Diverged(
                f"the loss is {float(loss)}", self.state.global_step + 1, "skip the data, or halve lr.peak"
            )
        return loss


class Watch(TrainerCallback):
    """Phases, log, status and guard."""

    def __init__(self, log, phases, watch, out_dir, checkpoints, evaluated, tokens_per_step, flops, peak):
        self.log, self.phases, self.guard, self.evaluated = log, phases, watch, evaluated
        self.out_dir, self.checkpoints, self.tokens_per_step = out_dir, checkpoints, tokens_per_step
        self.flops, self.peak, self.since, self.val_loss, self.stopped = flops, peak, None, None, ""

    def on_step_begin(self, args, state, control, **kwargs):
        self.evaluated.phase = self.phases.index(state.global_step)
        self.since = self.since or (state.global_step, time.perf_counter())

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step in self.phases.ends or state.global_step >= state.max_steps:
            control.should_evaluate = control.should_save = True
        return control

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" not in (logs or {}) or not self.since:
            return
        step, (before, began) = state.global_step, self.since
        speed = self.tokens_per_step * (step - before) / max(1e-9, time.perf_counter() - began)
        loss, norm = float(logs["loss"]), float(logs.get("grad_norm") or 0.0)
        mfu = self.flops * speed / args.world_size / self.peak if self.peak else None
        self.log.train(step, loss, float(logs["learning_rate"]), norm, speed, mfu)
        self.since = (step, time.perf_counter())
        self.guard.look(step, loss, norm, scaled=args.fp16)

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        step, self.val_loss = state.global_step, float(metrics["eval_loss"])
        self.log.say(f"step {step}: val_loss {self.val_loss:.4f}")
        self.log.event("eval", step, val_loss=self.val_loss)
        self.log.status("running", step, guard.newest(self.checkpoints), self.val_loss)
        if step in self.phases.ends:
            number = self.phases.ends.index(step)
            name = self.phases.phases[number]["name"]
            missed = self.phases.unmet(number, {"val_loss": self.val_loss, "loss": self.log.latest.get("loss")})
            self.log.event("phase", step, phase=name, met=not missed)
            if missed and (step < state.max_steps or step == self.phases.total):
                self.stopped = f"phase {name} ended at step {step}, but {missed}"
                self.log.risk("criteria", self.stopped)
                self.log.say(f"{self.stopped}: stopped")
                control.should_training_stop = True
        self.since = (step, time.perf_counter())
        return control

    def on_save(self, args, state, control, **kwargs):
        self.log.event("checkpoint", state.global_step)


class Profile(TrainerCallback):
    """A Chrome trace of some steps."""

    def __init__(self, words, out_dir):
        self.first, self.count = (int(word) for word in words.split(":"))
        self.out_dir, self.seen, self.profiler = out_dir, 0, None

    def on_step_begin(self, args, state, control, **kwargs):
        self.seen += 1
        if self.seen == self.first + 1:
            self.profiler = torch.profiler.profile().__enter__()

    def on_step_end(self, args, state, control, **kwargs):
        if self.profiler and self.seen == self.first + self.count:
            self.profiler.__exit__(None, None, None)
            self.profiler.export_chrome_trace(os.path.join(self.out_dir, f"trace-rank{args.process_index}.json"))
            self.profiler = None


def agree(out_dir, config, allowed, resuming):
    """Refuse to resume with settings that change the result; record them at the first start."""
    path, now = os.path.join(out_dir, "identity.json"), configuration.identity(config)
    if resuming and os.path.exists(path):
        with open(path, encoding="utf-8") as handle:
            refuse_changed_config(json.load(handle), json.loads(json.dumps(now)), allowed)
    os.makedirs(out_dir, exist_ok=True)
    write_aside(path, json.dumps(now, indent=1) + "\n")


def main():
    """Train; return the exit status."""
    args = arguments()
    config = configuration.load(args.config, DEFAULTS, args.set)
    settings, model_of, out_dir = config["train"], config["model"], config["log"]["out_dir"]
    checkpoints = os.path.join(out_dir, "ckpt")
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    cuda = torch.cuda.is_available()
    per_rank, uneven = divmod(settings["global_batch"], world * settings["micro_batch"])
    if uneven or not per_rank:
        raise configuration.ConfigError(
            f"train.global_batch {settings['global_batch']} is no multiple of micro_batch {settings['micro_batch']} "
            f"times {world} processes"
        )
    if args.roll_back is not None and rank == 0:
        print(f"set aside in {guard.roll_back(out_dir, checkpoints, args.roll_back, args.skip_window)}", flush=True)
    precision = settings["precision"]
    if precision == "auto":
        precision = "fp32" if not cuda else "bf16" if torch.cuda.get_device_capability()[0] >= 8 else "fp16"
    set_seed(settings["seed"])
    tokens_per_step = settings["global_batch"] * model_of["block_size"]
    phases = configuration.Phases(config["phases"], tokens_per_step)
    for phase in config["phases"]:
        phase["data"] = {tokenized(path, model_of["tokenizer"]): weight for path, weight in phase["data"].items()}
    mix = Mix(config["phases"], config["data"]["val_share"], model_of["block_size"], settings["seed"])
    keeping = config["checkpoint"]
    training = TrainingArguments(
        output_dir=os.path.join(out_dir, "trainer"), save_strategy="no", report_to="none", disable_tqdm=True,
        per_device_train_batch_size=settings["micro_batch"], per_device_eval_batch_size=settings["micro_batch"],
        gradient_accumulation_steps=per_rank, max_steps=phases.total, learning_rate=1.0,  # times phases.lr
        weight_decay=settings["weight_decay"], adam_beta1=settings["beta1"], adam_beta2=settings["beta2"],
        max_grad_norm=settings["grad_clip"] or 0.0, optim="adamw_torch_fused" if cuda else "adamw_torch",
        bf16=precision == "bf16", fp16=precision == "fp16", torch_compile=settings["compile"],
        fsdp=settings["fsdp"], seed=settings["seed"],
        **({"gradient_checkpointing": True} if settings["recompute"] else {}),
        logging_steps=config["log"]["every"], logging_first_step=True, logging_nan_inf_filter=False,
        eval_strategy="steps", eval_steps=config["data"]["eval_every"], dataloader_pin_memory=cuda,
    )  # fmt: skip
    keep = CommittedCheckpoints(
        checkpoints, every_steps=keeping["every_steps"], every_s=keeping["every_s"], durable=keeping["durable"],
        milestones=[*keeping["milestones"], *phases.ends], keep=Keep(latest=keeping["latest"], best=keeping["best"]),
    )  # fmt: skip
    folder = keep.resume_from(args.allow_restart)
    if rank == 0:
        agree(out_dir, config, args.allow_change, folder is not None)
    first = guard.step_of(folder) if folder else 0
    if args.limit_batches:
        training.max_steps = min(phases.total, first + args.limit_batches)
    model = build(model_of)
    weights = sum(p.numel() for p in model.parameters())
    log = RunLog(out_dir, config["log"]["name"], configuration.flat(config), phases, config["log"]["tracker"], rank)
    log.say(f"{weights:,} parameters, {precision}, {world} processes, {tokens_per_step:,} tokens per step, "
            f"steps {first} to {training.max_steps} of {phases.total}")  # fmt: skip
    log.event("resume" if first else "start", first)
    batches = 1 if args.limit_batches else config["data"]["eval_batches"]
    evaluated = Sequences(mix, phases, settings["global_batch"], "val", batches * settings["micro_batch"])
    trained = Sequences(mix, phases, settings["global_batch"], "train", phases.total * settings["global_batch"],
                        guard.interventions(out_dir), args.overfit)  # fmt: skip
    limits = guard.Guard(config["guard"]["factor"], config["guard"]["patience"])
    peak = peak_flops(torch.cuda.get_device_name()) if cuda else None
    watch = Watch(log, phases, limits, out_dir, checkpoints, evaluated, tokens_per_step, 6 * weights, peak)
    trainer = PhasedTrainer(model, training, train_dataset=trained, eval_dataset=evaluated, callbacks=[watch, keep])
    trainer.phases = phases
    trainer.remove_callback(PrinterCallback)
    if args.profile:
        trainer.add_callback(Profile(args.profile, out_dir))
    code, name = 0, ""
    try:
        if first < training.max_steps:
            trainer.train(resume_from_checkpoint=folder)
        code = guard.STOPPED if watch.stopped else 0
    except guard.Diverged as bad:
        code = guard.stop(log, out_dir, checkpoints, trainer.state.global_step, bad.why, bad.onset, bad.mitigation)
    except torch.cuda.OutOfMemoryError:
        half = max(1, settings["micro_batch"] // 2)
        code = guard.stop(log, out_dir, checkpoints, trainer.state.global_step, "out of GPU memory",
                          trainer.state.global_step + 1, f"train.micro_batch {half}: smaller batches",
                          f"python train.py --set train.micro_batch={half}")  # fmt: skip
    keep.close()
    step = trainer.state.global_step
    if not code:
        log.event("end", step)
        name = "finished" if first >= phases.total or step >= phases.total else "stopped early"
    if not code or watch.stopped:
        log.status(name or "stopped, waits for a person", max(first, step), guard.newest(checkpoints), watch.val_loss)
    log.close()
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (configuration.ConfigError, CheckpointError) as error:
        sys.exit(f"train.py: {error}")
