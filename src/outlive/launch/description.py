"""What is to be launched, as one value. A ``Launch`` that exists is possible: every impossible one is a UsageError."""

from __future__ import annotations

import json
import re
import string
from dataclasses import dataclass

from outlive.errors import UsageError

STRATEGIES = ("ddp", "zero1", "zero2", "zero3", "hsdp")
"""Everything on every GPU; sharded: the optimizer, + gradients, + parameters; the last one inside each node."""
PRECISIONS = ("bf16", "fp16", "fp32")
RECOMPUTE = ("none", "selective", "full")
OFFLOAD = ("none", "optimizer", "all")
DEVICES = ("cuda", "cpu")
SHM_ONE_NODE_BYTES = 16 << 30
SHM_MANY_NODES_BYTES = 32 << 30
SHM_PER_WORKER_BYTES = 2 << 30

_NAME = re.compile(r"[a-z]([a-z0-9-]{0,50}[a-z0-9])?")  # what Kubernetes takes, with room for what is appended
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD = re.compile(r"[A-Za-z0-9_.,:=/+@%-]+")
_INTERFACE = re.compile(r"[A-Za-z0-9_.-]+")
_CLASS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A directory of each node that the work sees. ``source`` is a path there, in Kubernetes the name of a claim."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """What was read about the network of the nodes. None: not read, and then nothing is set."""

    interface: str | None = None
    """The interface that carries the training traffic."""
    infiniband: tuple[str, ...] | None = None
    """Active InfiniBand or RoCE devices such as ``mlx5_0:1``; ``()`` means looked for and absent."""
    peer_to_peer: bool | None = None
    """Whether the GPUs of a node can read each other's memory; False where it hangs or is switched off."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One launch. Sizes in bytes, times in seconds, batch sizes in sequences."""

    # the work
    name: str = "train"
    script: str = "train.py"
    args: tuple[str, ...] = ()
    """Words after the script. ``{micro_batch}`` and the other names of ``placeholders`` are put in."""
    env: tuple[tuple[str, str], ...] = ()

    # where
    nodes: int = 1
    gpus_per_node: int = 1
    min_nodes: int | None = None
    """Elastic: go on with this many. None: all or nothing."""
    device: str = "cuda"
    hosts: tuple[str, ...] = ()
    """Names of the nodes, the first one is where the others meet. Empty: asked for when it is started."""
    port: int = 29500
    fabric: Fabric = Fabric()

    # the layout
    strategy: str = "ddp"
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    context_parallel: int = 1
    expert_parallel: int = 1
    precision: str = "bf16"
    micro_batch: int = 1
    accumulation: int = 1
    global_batch: int | None = None
    recompute: str = "none"
    offload: str = "none"
    block_classes: tuple[str, ...] = ()
    """Names of the module classes that are sharded and recomputed one by one (``LlamaDecoderLayer``)."""
    clip_norm: float = 1.0

    # limits and signals
    checkpoint_dir: str = "out/ckpt"
    mounts: tuple[Mount, ...] = ()
    workers: int = 4
    """Data loader processes per GPU."""
    shm_bytes: int | None = None
    grace_s: int = 120
    """Between the word that it ends and the kill; the last save must fit in."""
    mtbf_s: float | None = None
    walltime_s: int = 4 * 3600
    max_restarts: int = 3
    timeout_s: int = 1800
    """How long a collective may wait before it is an error."""

    # queues and images
    image: str = "pytorch/pytorch:latest"
    partition: str = ""
    account: str = ""
    namespace: str = "default"
    kueue_queue: str = ""

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            _refuse_unless(_is_whole(getattr(self, name), 1), f"{name} must be a whole number from 1 on", self, name)
        for name in ("workers", "max_restarts"):
            _refuse_unless(_is_whole(getattr(self, name), 0), f"{name} must be a whole number from 0 on", self, name)
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            _refuse_unless(value in choices, f"{name} must be one of {', '.join(choices)}", self, name)
        _refuse_unless(self.port < 65536, "port must be below 65536", self, "port")
        _refuse_unless(
            _finite(self.clip_norm) and self.clip_norm >= 0, "clip_norm must be 0 or more", self, "clip_norm"
        )
        if self.mtbf_s is not None:
            _refuse_unless(_finite(self.mtbf_s) and self.mtbf_s > 0, "mtbf_s must be above 0", self, "mtbf_s")
        if self.shm_bytes is not None:
            _refuse_unless(_is_whole(self.shm_bytes, 1 << 20), "shm_bytes must be a MiB or more", self, "shm_bytes")
        self._check_words()
        self._check_layout()

    def _check_words(self) -> None:
        _match(_NAME, self.name, "name", "lower-case letters, digits and hyphens, at most 52, a letter first")
        for host in self.hosts:
            _match(_HOST, host, "hosts", "names or addresses")
        if self.hosts and len(self.hosts) != self.nodes:
            raise UsageError(f"{len(self.hosts)} hosts are named for {self.nodes} nodes", safe="Nothing was written.")
        for name, _ in self.env:
            _match(_VARIABLE, name, "env", "names of environment variables")
        if len({name for name, _ in self.env}) != len(self.env):
            raise UsageError("env sets a variable twice", safe="Nothing was written.")
        _match(_WORD, self.image, "image", "one word")
        _match(_NAME, self.namespace, "namespace", "lower-case letters, digits and hyphens")
        for key in ("partition", "account", "kueue_queue"):
            value = getattr(self, key)
            if value:
                _match(_WORD, value, key, "one word")
        if self.fabric.interface is not None:
            _match(_INTERFACE, self.fabric.interface, "fabric.interface", "the name of an interface")
        for device in self.fabric.infiniband or ():
            _match(_WORD, device, "fabric.infiniband", "names of devices")
        for name in self.block_classes:
            _match(_CLASS, name, "block_classes", "names of classes")
        texts = {"script": self.script, "checkpoint_dir": self.checkpoint_dir}
        texts |= {f"args[{n}]": word for n, word in enumerate(self.args)}
        texts |= {f"env {name}": value for name, value in self.env}
        for mount in self.mounts:
            texts |= {"mount source": mount.source, "mount target": mount.target}
            for path in (mount.source, mount.target):
                if not path or "," in path or '"' in path:
                    raise UsageError(
                        f"mount {path!r}: a path without commas and quotes is needed", safe="Nothing was written."
                    )
            if not mount.target.startswith("/"):
                raise UsageError(f"mount target {mount.target!r} must be absolute", safe="Nothing was written.")
        for key, text in texts.items():
            if any(ord(sign) < 32 or ord(sign) == 127 for sign in text):
                raise UsageError(f"{key} holds a control character: {text!r}", safe="Nothing was written.")
        for key in ("script", "checkpoint_dir"):
            if not texts[key] or texts[key].startswith("-"):
                raise UsageError(f"{key} must be a path, not {texts[key]!r}", safe="Nothing was written.")
        self.words()  # an unknown placeholder is said now

    def _check_layout(self) -> None:
        tp, pp, cp = self.tensor_parallel, self.pipeline_parallel, self.context_parallel
        if self.gpus_per_node % tp:
            raise UsageError(
                f"tensor parallel {tp} does not divide the {self.gpus_per_node} GPUs of a node",
                safe="Nothing was written.",
            )
        if self.world % (tp * pp * cp):
            raise UsageError(
                f"tensor {tp} x pipeline {pp} x context {cp} = {tp * pp * cp} does not divide {self.world} GPUs",
                safe="Nothing was written.",
            )
        if (self.data_parallel * cp) % self.expert_parallel:
            raise UsageError(
                f"expert parallel {self.expert_parallel} does not divide data {self.data_parallel} x context {cp}",
                safe="Nothing was written.",
            )
        made = self.micro_batch * self.accumulation * self.data_parallel
        if self.global_batch is not None and self.global_batch != made:
            raise UsageError(
                f"micro-batch {self.micro_batch} x accumulation {self.accumulation} x data parallel "
                f"{self.data_parallel} is {made}, not the global batch {self.global_batch}",
                safe="Nothing was written.",
            )
        if self.min_nodes is not None:
            if not _is_whole(self.min_nodes, 1) or self.min_nodes > self.nodes:
                raise UsageError(
                    f"min_nodes {self.min_nodes!r} must be between 1 and nodes ({self.nodes})",
                    safe="Nothing was written.",
                )
            if self.min_nodes < self.nodes and (self.min_nodes * self.gpus_per_node) % (tp * pp * cp):
                raise UsageError(
                    f"{self.min_nodes} nodes have {self.min_nodes * self.gpus_per_node} GPUs: not a multiple of "
                    f"tensor x pipeline x context = {tp * pp * cp}",
                    safe="Nothing was written.",
                )
        if self.strategy == "hsdp" and self.nodes == 1:
            raise UsageError(
                "hsdp shards inside a node and copies between nodes; with one node that is zero3",
                safe="Nothing was written.",
            )
        if self.strategy == "hsdp" and tp > 1:
            raise UsageError("hsdp with tensor parallelism is not rendered here", safe="Nothing was written.")

    @property
    def world(self) -> int:
        """Processes: one per GPU."""
        return self.nodes * self.gpus_per_node

    @property
    def data_parallel(self) -> int:
        """Copies of the model that see different data, sharded or not."""
        return self.world // (self.tensor_parallel * self.pipeline_parallel * self.context_parallel)

    @property
    def whole_batch(self) -> int:
        """Sequences per optimizer step, over all GPUs."""
        return self.micro_batch * self.accumulation * self.data_parallel

    @property
    def shared_memory_bytes(self) -> int:
        """Size of /dev/shm: as asked, else by data loader processes, 16 GiB at least and 32 on several nodes."""
        if self.shm_bytes is not None:
            return self.shm_bytes
        floor = SHM_ONE_NODE_BYTES if self.nodes == 1 else SHM_MANY_NODES_BYTES
        return max(floor, self.gpus_per_node * self.workers * SHM_PER_WORKER_BYTES)

    @property
    def placeholders(self) -> dict[str, str]:
        """What may stand in braces in ``args``."""
        return {
            "accumulation": str(self.accumulation),
            "checkpoint_dir": self.checkpoint_dir,
            "context_parallel": str(self.context_parallel),
            "data_parallel": str(self.data_parallel),
            "expert_parallel": str(self.expert_parallel),
            "global_batch": str(self.whole_batch),
            "gpus_per_node": str(self.gpus_per_node),
            "micro_batch": str(self.micro_batch),
            "nodes": str(self.nodes),
            "pipeline_parallel": str(self.pipeline_parallel),
            "precision": self.precision,
            "tensor_parallel": str(self.tensor_parallel),
            "workers": str(self.workers),
            "world": str(self.world),
        }

    def words(self) -> list[str]:
        """Return the script and its arguments with the placeholders put in. Raises UsageError for an unknown one."""
        known = self.placeholders
        return [self.script, *(_put_in(word, known) for word in self.args)]

    def layout(self) -> dict[str, object]:
        """Return what every rendering repeats in its head, so that a file says which plan it belongs to."""
        return {
            "nodes": self.nodes,
            "gpus_per_node": self.gpus_per_node,
            "strategy": self.strategy,
            "data_parallel": self.data_parallel,
            "tensor_parallel": self.tensor_parallel,
            "pipeline_parallel": self.pipeline_parallel,
            "context_parallel": self.context_parallel,
            "expert_parallel": self.expert_parallel,
            "precision": self.precision,
            "micro_batch": self.micro_batch,
            "accumulation": self.accumulation,
            "global_batch": self.whole_batch,
            "recompute": self.recompute,
            "offload": self.offload,
        }

    def header(self) -> str:
        """Return two comment lines, the same in shell, YAML and Python."""
        gpus = "GPU" if self.device == "cuda" else "CPU process"
        each = (
            f"{self.gpus_per_node} {gpus}{'es' if gpus[-1] == 's' else 's'}" if self.gpus_per_node > 1 else f"1 {gpus}"
        )
        nodes = f"{self.nodes} node{'s' if self.nodes > 1 else ''} with {each} each"
        return f"# {self.name}: {nodes}, written by `outlive plan`\n# layout: {json.dumps(self.layout())}"


_POSITIVE = (
    "nodes", "gpus_per_node", "port", "tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel",
    "micro_batch", "accumulation", "grace_s", "walltime_s", "timeout_s",
)  # fmt: skip
_CHOICES = {
    "device": DEVICES,
    "strategy": STRATEGIES,
    "precision": PRECISIONS,
    "recompute": RECOMPUTE,
    "offload": OFFLOAD,
}


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _finite(value: float) -> bool:
    return isinstance(value, (int, float)) and value == value and abs(value) != float("inf")


def _refuse_unless(good: bool, what: str, launch: Launch, name: str) -> None:
    if not good:
        raise UsageError(f"{what}, not {getattr(launch, name)!r}", safe="Nothing was written.")


def _match(pattern: re.Pattern[str], text: str, key: str, wanted: str) -> None:
    if not pattern.fullmatch(text):
        raise UsageError(f"{key}: {text!r} is not possible; wanted: {wanted}", safe="Nothing was written.")


def _put_in(word: str, known: dict[str, str]) -> str:
    """Replace ``{name}``; doubled braces stand for themselves."""
    try:
        parts = list(string.Formatter().parse(word))
    except ValueError as error:
        raise UsageError(
            f"argument {word!r}: {error}; a brace that is meant is written twice", safe="Nothing was written."
        ) from error
    text = ""
    for literal, field, spec, conversion in parts:
        text += literal
        if field is None:
            continue
        if field not in known or spec or conversion:
            raise UsageError(
                f"argument {word!r}: unknown placeholder {{{field}}}",
                why=[f"known: {', '.join(known)}", "a brace that is meant is written twice"],
                safe="Nothing was written.",
            )
        text += known[field]
    return text
