"""Train a GPT from nothing, in phases, so that it can be killed at any moment and goes on from its last checkpoint.

    python train.py                                      one process, GPU if there is one
    torchrun --standalone --nproc-per-node 8 train.py    one process for each GPU
    python train.py --limit-batches 2                    does it run at all?
    python train.py --overfit                            one batch again and again: the loss must go to nearly 0

The same command starts and resumes. Settings are in training_config.yaml; `--set section.key=value` changes one.
"""

import argparse
import contextlib
import os
import random
import sys
import time

import torch
import torch.distributed as dist

import config as configuration
import guard
from data import Mix
from model import GPT, Shape
from runlog import RunLog, peak_flops

try:
    from outlive.checkpoints.errors import CheckpointError
    from outlive.checkpoints.retention import Keep
    from outlive.checkpoints.torch import Checkpointer
except ImportError:
    sys.exit("train.py needs outlive's checkpoints: on a box `outlive run` brings them; elsewhere: pip install outlive")

DEFAULTS = {
    "model": {"vocab_size": 256, "block_size": 128, "n_layer": 4, "n_head": 4, "n_embd": 128, "dropout": 0.0,
              "bias": False},
    "train": {"seed": 1337, "global_batch": 16, "micro_batch": 8, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95,
              "grad_clip": 1.0, "precision": "auto", "compile": "auto", "parallel": "ddp", "deterministic": False},
    "data": {"val_share": 0.1, "eval_every": 20, "eval_batches": 8},
    "checkpoint": {"every_steps": None, "every_s": None, "latest": 2, "best": 1, "milestones": [], "durable": None},
    "log": {"every": 5, "tracker": "none", "out_dir": "out", "name": "nanogpt"},
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
        "--allow-change", action="append", default=[], metavar="SECTION.KEY", help="resume although it differs"
    )
    parser.add_argument(
        "--roll-back", type=int, metavar="STEP", help="set aside all checkpoints after STEP, go on there"
    )
    parser.add_argument(
        "--skip-window", type=int, default=0, metavar="N", help="with --roll-back: pass over N steps of data"
    )
    return parser.parse_args()


def pick_precision(asked, device):
    """Return bf16 where the hardware has it, fp16 (with a scaler) on older GPUs, fp32 on a CPU."""
    if asked != "auto":
        if asked not in ("bf16", "fp16", "fp32"):
            raise configuration.ConfigError(f"train.precision is {asked!r}; write auto, bf16, fp16 or fp32")
        return asked
    if device.type != "cuda":
        return "fp32"
    return "bf16" if torch.cuda.get_device_capability(device)[0] >= 8 else "fp16"


def build(config, device, precision, world):
    """Return (model as built, the same for training, optimizer, scaler)."""
    settings = config["train"]
    raw = GPT(Shape(**config["model"])).to(device)
    model = raw
    if settings["parallel"] == "fsdp" and world > 1:
        from torch.distributed.fsdp import fully_shard

        for block in raw.blocks:
            fully_shard(block)
        fully_shard(raw)
    decayed = [p for p in raw.parameters() if p.dim() > 1]  # not norms and biases
    plain = [p for p in raw.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": settings["weight_decay"]}, {"params": plain, "weight_decay": 0.0}],
        lr=0.0, betas=(settings["beta1"], settings["beta2"]), fused=device.type == "cuda",
    )  # fmt: skip
    scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
    if settings["compile"] is True or (settings["compile"] == "auto" and device.type == "cuda"):
        model = torch.compile(model)
    if settings["parallel"] == "ddp" and world > 1:
        model = torch.nn.parallel.DistributedDataParallel(
            model, device_ids=[device.index] if device.type == "cuda" else None
        )
    return raw, model, optimizer, scaler


@torch.no_grad()
def evaluate(model, mix, phase, batches, size, device, autocast):
    """Return the mean loss over the same held-out sequences each time."""
    model.eval()
    losses = []
    for number in range(batches):
        x, y = mix.batch("val", phase, 0, number * size, size)
        with autocast():
            losses.append(model(x.to(device), y.to(device))[1].float())
    model.train()
    return float(torch.stack(losses).mean())


def main():
    """Train; return the exit status."""
    args = arguments()
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    config = configuration.load(args.config, DEFAULTS, args.set)
    settings, out_dir = config["train"], config["log"]["out_dir"]
    checkpoints = os.path.join(out_dir, "ckpt")
    precision = pick_precision(settings["precision"], device)
    per_rank, uneven = divmod(settings["global_batch"], world * settings["micro_batch"])
    if uneven or not per_rank:
        raise configuration.ConfigError(
            f"train.global_batch {settings['global_batch']} is no multiple of micro_batch {settings['micro_batch']} "
            f"times {world} processes"
        )
    if args.roll_back is not None and rank == 0:
        print(f"set aside in {guard.roll_back(out_dir, checkpoints, args.roll_back, args.skip_window)}", flush=True)
    if world > 1:
        dist.init_process_group("nccl" if cuda else "gloo")  # after roll_back: the others wait here for rank 0

    random.seed(settings["seed"])
    torch.manual_seed(settings["seed"])
    with contextlib.suppress(ImportError):
        import numpy

        numpy.random.seed(settings["seed"])
    if cuda:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    if settings["deterministic"]:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    tokens_per_step = settings["global_batch"] * config["model"]["block_size"]
    phases = configuration.Phases(config["phases"], tokens_per_step)
    mix = Mix(config["phases"], config["data"]["val_share"], config["model"]["block_size"], settings["seed"])
    raw, model, optimizer, scaler = build(config, device, precision, world)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    autocast = (lambda: torch.autocast(device.type, dtype)) if dtype else contextlib.nullcontext
    watch = guard.Guard(config["guard"]["factor"], config["guard"]["patience"])
    log = RunLog(out_dir, config["log"]["name"], configuration.flat(config), phases, config["log"]["tracker"], rank)

    state = {"tokens": 0, "guard": watch.state_dict()}
    keeping = config["checkpoint"]
    ckpt = Checkpointer(
        checkpoints, model=raw, optimizer=optimizer, scaler=scaler if scaler.is_enabled() else None, extra=state,
        config=configuration.identity(config), every_steps=keeping["every_steps"], every_s=keeping["every_s"],
        milestones=keeping["milestones"], keep=Keep(latest=keeping["latest"], best=keeping["best"]),
        durable=keeping["durable"],
    )  # fmt: skip
    first = ckpt.resume(args.allow_restart, args.allow_change)
    watch.load_state_dict(state["guard"])
    done = guard.interventions(out_dir)
    last = min(phases.total, first + args.limit_batches) if args.limit_batches else phases.total
    size, accumulate = settings["micro_batch"], per_rank
    peak = peak_flops(torch.cuda.get_device_name(device)) if cuda else None
    log.say(f"{sum(p.numel() for p in raw.parameters()):,} parameters, {precision}, {world} processes, "
            f"{tokens_per_step:,} tokens per step, steps {first} to {last} of {phases.total}")  # fmt: skip
    log.event("resume" if first else "start", first)
    trace = tuple(int(word) for word in args.profile.split(":")) if args.profile else None
    profiler, out_of_memory, code, val_loss, step = None, 0, 0, None, first
    since, since_step = time.perf_counter(), first

    while step < last:
        phase, lr = phases.index(step), phases.lr(step)
        for group in optimizer.param_groups:
            group["lr"] = lr
        if trace and step == first + trace[0]:
            profiler = torch.profiler.profile().__enter__()
        try:
            total = torch.zeros((), device=device)
            where = 0 if args.overfit else guard.data_step(step, done)
            for turn in range(accumulate):
                x, y = mix.batch("train", phase, where, (turn * world + rank) * size, size)
                if cuda:
                    x, y = x.pin_memory(), y.pin_memory()
                wait = (
                    model.no_sync() if hasattr(model, "no_sync") and turn < accumulate - 1 else contextlib.nullcontext()
                )
                with wait:
                    with autocast():
                        loss = model(x.to(device, non_blocking=True), y.to(device, non_blocking=True))[1] / accumulate
                    scaler.scale(loss).backward()
                total += loss.detach()
            if world > 1:
                dist.all_reduce(total, dist.ReduceOp.AVG if cuda else dist.ReduceOp.SUM)
                total /= 1 if cuda else world
            scaler.unscale_(optimizer)
            norm = torch.nn.utils.clip_grad_norm_(raw.parameters(), settings["grad_clip"] or float("inf"))
            norm = float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
            watch.look(step + 1, float(total), norm, scaled=scaler.is_enabled())
        except torch.cuda.OutOfMemoryError:
            out_of_memory += 1
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
            if out_of_memory < 2 and world == 1:
                continue  # once: the allocator may have been in pieces
            half = max(1, size // 2)
            code = guard.stop(log, out_dir, checkpoints, step, "out of GPU memory twice at one step", step + 1,
                              f"train.micro_batch {half}: the same step from twice as many smaller batches",
                              f"python train.py --set train.micro_batch={half}")  # fmt: skip
            break
        except guard.Diverged as bad:
            code = guard.stop(log, out_dir, checkpoints, step, bad.why, bad.onset, bad.mitigation)
            break
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        step, out_of_memory = step + 1, 0
        state.update(tokens=step * tokens_per_step, guard=watch.state_dict())
        if profiler and step >= first + sum(trace):
            profiler.__exit__(None, None, None)
            profiler.export_chrome_trace(os.path.join(out_dir, f"trace-rank{rank}.json"))
            profiler = None
        if step % config["log"]["every"] == 0 or step == last or step == first + 1:
            speed = tokens_per_step * (step - since_step) / max(1e-9, time.perf_counter() - since)
            log.train(
                step, float(total), lr, norm, speed, raw.flops_per_token() * speed / world / peak if peak else None
            )
            since, since_step = time.perf_counter(), step
        ended = step == phases.ends[phase]
        metrics = {"loss": float(total)}
        if step % config["data"]["eval_every"] == 0 or ended or step == last:
            batches = 1 if args.limit_batches else config["data"]["eval_batches"]
            metrics["val_loss"] = val_loss = evaluate(raw, mix, phase, batches, size, device, autocast)
            log.say(f"step {step}: val_loss {val_loss:.4f}")
            log.event("eval", step, val_loss=val_loss)
            log.risk("gap", f"val_loss {val_loss - metrics['loss']:.2f} over loss: it learns its data by heart"
                     if val_loss > metrics["loss"] + 1.0 else "")  # fmt: skip
            since, since_step = time.perf_counter(), step
        tokens = step * tokens_per_step
        if ended or step == last:  # the end of a phase stays for good
            ckpt.save(step, metrics, tokens=tokens, milestone=ended)
            saved = "end"
        else:
            saved = ckpt.maybe_save(step, metrics, tokens=tokens)  # after SIGTERM it saves and ends the process
        if saved:
            log.event("checkpoint", step, why=saved)
        if saved or "val_loss" in metrics:
            log.status("running", step, guard.newest(checkpoints), val_loss)
        if ended:
            missed = phases.unmet(phase, metrics)
            log.event("phase", step, phase=config["phases"][phase]["name"], met=not missed)
            if missed and not args.limit_batches:
                log.risk("criteria", f"phase {config['phases'][phase]['name']} ended, but {missed}")
                log.say(f"phase {config['phases'][phase]['name']} ended at step {step}, but {missed}: stopped")
                log.status("stopped, waits for a person", step, guard.newest(checkpoints), val_loss)
                code = guard.STOPPED
                break
    ckpt.close()
    if not code:
        log.event("end", step)
        log.status("finished" if step == phases.total else "stopped early", step, guard.newest(checkpoints), val_loss)
    log.close()
    if world > 1:
        dist.destroy_process_group()
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (configuration.ConfigError, CheckpointError) as error:
        sys.exit(f"train.py: {error}")
