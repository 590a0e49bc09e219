"""Every check by its slug, and the page that tells of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from outlive.advice.lint import (
    credentials,
    domains,
    evaluation,
    loaders,
    losses,
    optimizers,
    order,
    precision,
    processes,
    resume,
    saving,
    speed,
    texts,
)
from outlive.advice.lint.hit import Check
from outlive.advice.lint.texts import TextCheck

CODE: dict[str, Check] = {
    "accelerate-no-register": saving.accelerate_no_register,
    "accum-no-divide": order.accum_no_divide,
    "accumulates-loss-tensor": losses.accumulates_loss_tensor,
    "adam-weight-decay": optimizers.adam_weight_decay,
    "anomaly-on": order.anomaly_left_on,
    "append-loss-tensor": losses.append_loss_tensor,
    "backward-in-autocast": order.backward_in_autocast,
    "backward-on-item": order.backward_on_item,
    "bceloss": losses.bceloss,
    "benchmark-with-deterministic": precision.benchmark_with_deterministic,
    "bf16-scaler": precision.bf16_scaler,
    "ce-no-ignore-index": losses.ce_no_ignore_index,
    "clip-no-unscale": order.clip_no_unscale,
    "collective-under-rank-if": processes.collective_under_rank,
    "constant-worker-seed": loaders.constant_worker_seed,
    "cv2-no-cvtcolor": loaders.cv2_no_cvtcolor,
    "ddp-with-plain-bn": processes.ddp_with_plain_bn,
    "debug-left-on": speed.debug_left_on,
    "decay-on-norms": optimizers.decay_on_norms,
    "eager-attention": precision.eager_attention,
    "ema-not-restored": resume.ema_not_restored,
    "ema-not-saved": resume.ema_not_saved,
    "ema-unused-in-sampling": evaluation.ema_unused_in_sampling,
    "empty-cache-every-step": speed.empty_cache_every_step,
    "engine-bare-backward": order.engine_bare_backward,
    "eval-never-back": evaluation.eval_never_back,
    "eval-without-no-grad": evaluation.eval_without_no_grad,
    "fit-on-test": loaders.fit_on_test,
    "flag-gated-load": saving.flag_gated_load,
    "fp16-no-scaler": precision.fp16_no_scaler,
    "freeze-after-optimizer": optimizers.freeze_after_optimizer,
    "frozen-bn-train": optimizers.frozen_bn_train,
    "fsdp-no-autowrap": processes.fsdp_no_autowrap,
    "full-state-no-offload": saving.full_state_no_offload,
    "generate-right-pad": domains.right_padding,
    "generator-created-before-fork": loaders.generator_before_fork,
    "get-lr": optimizers.get_lr,
    "getitem-cache": loaders.getitem_cache,
    "getitem-modulo": loaders.getitem_modulo,
    "gpu-outputs-appended": evaluation.gpu_outputs_appended,
    "half-model": precision.half_model,
    "hard-coded-scale": domains.hard_coded_scale,
    "head-ends-in-softmax": losses.head_ends_in_softmax,
    "inplace-torch-save": saving.inplace_torch_save,
    "item-every-step": speed.item_every_step,
    "iterable-ddp": loaders.iterable_under_ddp,
    "iterable-no-worker-info": loaders.iterable_no_worker_info,
    "key-literal": credentials.key_literal,
    "labels-clone-input-ids": domains.labels_unmasked,
    "loader-defaults": loaders.loader_defaults,
    "log-config-lr": optimizers.log_config_lr,
    "mask-numel": losses.mask_numel,
    "missing-step": order.missing_step,
    "missing-zero-grad": order.missing_zero_grad,
    "mixedprecision-partial": processes.mixedprecision_partial,
    "nll-raw": losses.nll_raw,
    "no-clip": order.no_clip,
    "no-eval-call": evaluation.no_eval_call,
    "no-load-path": saving.no_load_path,
    "no-max-length": loaders.no_max_length,
    "no-persistent": loaders.no_persistent,
    "no-sampler-state": resume.no_sampler_state,
    "no-save-last": saving.no_save_last,
    "no-set-epoch": processes.no_set_epoch,
    "no-whiten": domains.advantage_raw,
    "normalize-first": loaders.normalize_first,
    "num-workers-zero": loaders.num_workers_zero,
    "only-sigterm-save": saving.only_sigterm_save,
    "optimizer-before-to": optimizers.optimizer_before_to,
    "packing-no-varlen": domains.packing_leaks,
    "pin-without-nonblocking": loaders.pin_without_nonblocking,
    "prediction-type-differs": domains.prediction_types,
    "pure-half-adam": optimizers.pure_half_adam,
    "random-in-eval": loaders.random_in_eval,
    "range-from-zero": resume.range_from_zero,
    "rank0-save-checkpoint": saving.rank0_save_checkpoint,
    "rng-not-saved": resume.rng_not_saved,
    "save-only-model": saving.save_only_model,
    "sb3-save-only": domains.replay_not_saved,
    "scaler-not-restored": resume.scaler_not_restored,
    "scaler-not-saved": resume.scaler_not_saved,
    "sched-before-opt": order.sched_before_opt,
    "scheduler-not-restored": resume.scheduler_not_restored,
    "scheduler-not-saved": resume.scheduler_not_saved,
    "set-device-global-rank": processes.set_device_global_rank,
    "silent-cpu-fallback": precision.silent_cpu,
    "slow-fp32": precision.slow_fp32,
    "softmax-then-ce": losses.softmax_then_ce,
    "strict-false": resume.strict_false,
    "submodule-created-after-optimizer": optimizers.submodule_after_optimizer,
    "token-literal": credentials.token_plain,
    "train-no-resume": saving.trainer_no_resume,
    "train-no-shuffle": loaders.train_no_shuffle,
    "train-under-no-grad": order.train_under_no_grad,
    "trainer-resume-arg": saving.lightning_resume_argument,
    "two-normalizes": loaders.two_normalizes,
    "ungated-save-ddp": saving.ungated_save_ddp,
    "wandb-init-no-id": credentials.wandb_no_id,
    "zero-after-backward": order.zero_after_backward,
}
"""Checks of Python files, sorted."""

TEXT: dict[str, tuple[TextCheck, frozenset[str]]] = {
    "bare-grep-done": (texts.bare_grep_done, frozenset({"shell"})),
    "crlf-bytes": (texts.crlf, frozenset({"shell"})),
    "dir-exists-gate": (texts.directory_as_proof, frozenset({"shell"})),
    "docker-run-no-shm": (texts.docker_no_shm, frozenset({"shell"})),
    "echo-after-silenced-copy": (texts.silenced_copy, frozenset({"shell"})),
    "from-moving-tag": (texts.moving_image, frozenset({"docker"})),
    "key-in-text": (texts.key_in_text, frozenset({"shell", "docker", "config"})),
    "launch-blocking": (texts.blocking_launches, frozenset({"shell", "docker", "config"})),
    "or-true-copy": (texts.copy_or_true, frozenset({"shell"})),
    "requirements-unpinned": (texts.unpinned, frozenset({"requirements"})),
    "semicolon-before-marker": (texts.marker_after_semicolon, frozenset({"shell"})),
    "tee-without-pipefail": (texts.tee_without_pipefail, frozenset({"shell"})),
    "unbounded-until": (texts.unbounded_until, frozenset({"shell"})),
    "unquoted-pipe-in-grep": (texts.unquoted_pipe, frozenset({"shell"})),
}
"""Checks of other files, and of which kinds of them."""

NEEDS = ("", "torch", "training")
SEVERITIES = ("error", "warning", "info")


@dataclass(frozen=True)
class Page:
    """What is told about a check. ``ids``: entries of the catalogue, the first names the finding."""

    slug: str
    ids: tuple[str, ...]
    title: str
    severity: str
    message: str
    fix: str
    needs: str


@cache
def pages() -> dict[str, Page]:
    """Return the page of every check."""
    import tomllib

    data = tomllib.loads(Path(__file__).with_name("checks.toml").read_text("utf-8"))
    return {
        slug: Page(
            slug=slug,
            ids=tuple(page["ids"]),
            title=page["title"],
            severity=page["severity"],
            message=page["message"],
            fix=page["fix"],
            needs=page.get("needs", ""),
        )
        for slug, page in data.items()
    }
