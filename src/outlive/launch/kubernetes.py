"""Kubernetes: Job, Indexed Job, JobSet and PyTorchJob, each with the label of a Kueue queue where one is named."""

from __future__ import annotations

import json
import re

from outlive.errors import UsageError
from outlive.launch.description import Launch, Mount
from outlive.launch.files import File, Rendering
from outlive.launch.fill import fill
from outlive.launch.network import environment
from outlive.launch.torchrun import argv

_BREAKS = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
REPLICATED = "node"  # name of the replicated job inside a JobSet


def render_job(launch: Launch) -> Rendering:
    """``kubernetes``: a Job with one pod."""
    if launch.nodes != 1:
        raise UsageError(
            f"`kubernetes` is one pod, this plan has {launch.nodes} nodes",
            next=[["outlive", "plan", "--emit", "kubernetes-indexed"]],
            safe="Nothing was written.",
        )
    words = argv(launch, "--standalone", restarts=launch.max_restarts)
    text = fill(
        "kubernetes-job.yaml",
        header=launch.header(),
        **_names(launch),
        suspend=_suspend(launch),
        tries=str(launch.max_restarts),
        limit=str(launch.walltime_s),
        pod=_pod(launch, words, restart="Never"),
    )
    return _one(launch, text, "a Job with one pod")


def render_indexed(launch: Launch) -> Rendering:
    """``kubernetes-indexed``: one pod per node, with names from a headless service."""
    words = argv(
        launch,
        "--rdzv-backend=c10d",
        "--rdzv-id=$(START)",
        f"--rdzv-endpoint={launch.name}-0.{launch.name}:{launch.port}",
        restarts=launch.max_restarts,
    )
    text = fill(
        "kubernetes-indexed.yaml",
        header=launch.header(),
        **_names(launch),
        suspend=_suspend(launch),
        port=str(launch.port),
        nodes=str(launch.nodes),
        tries=str(launch.max_restarts * launch.nodes),
        limit=str(launch.walltime_s),
        pod=_pod(
            launch,
            words,
            restart="Never",
            subdomain=launch.name,
            start="metadata.labels['batch.kubernetes.io/controller-uid']",
        ),
    )
    return _one(launch, text, "an Indexed Job and the service that gives its pods names")


def render_jobset(launch: Launch) -> Rendering:
    """``jobset``: all pods start again together, under a new id."""
    words = argv(
        launch,
        "--rdzv-backend=c10d",
        "--rdzv-id=$(START)",
        f"--rdzv-endpoint={launch.name}-{REPLICATED}-0-0.{launch.name}:{launch.port}",
    )
    text = fill(
        "jobset.yaml",
        header=launch.header(),
        **_names(launch),
        suspend=_suspend(launch),
        group=REPLICATED,
        nodes=str(launch.nodes),
        restarts=str(launch.max_restarts),
        limit=str(launch.walltime_s),
        pod=_pod(
            launch,
            words,
            restart="Never",
            start="metadata.labels['jobset.sigs.k8s.io/restart-attempt']",
        ),
    )
    return _one(launch, text, "a JobSet: needs its controller in the cluster")


def render_pytorchjob(launch: Launch) -> Rendering:
    """``pytorchjob``: the training operator sets torchrun's variables itself."""
    least = launch.min_nodes or launch.nodes
    text = fill(
        "pytorchjob.yaml",
        header=launch.header(),
        **_names(launch),
        suspend=_suspend(launch),
        nodes=str(launch.nodes),
        least=str(least),
        processes=json.dumps(str(launch.gpus_per_node)),
        restarts=str(launch.max_restarts),
        limit=str(launch.walltime_s),
        pod=_pod(launch, [["torchrun"], launch.words()], restart="", container="pytorch"),
    )
    return _one(launch, text, "a PyTorchJob: needs the training operator in the cluster")


def _one(launch: Launch, text: str, about: str) -> Rendering:
    return Rendering((File("job.yaml", text, about),), ("kubectl create -f job.yaml",))


def _names(launch: Launch) -> dict[str, str]:
    labels = f"labels:\n  kueue.x-k8s.io/queue-name: {json.dumps(launch.kueue_queue)}" if launch.kueue_queue else ""
    return {"name": json.dumps(launch.name), "namespace": json.dumps(launch.namespace), "labels": labels}


def _suspend(launch: Launch) -> str:
    return "suspend: true   # Kueue lets it go when there is room" if launch.kueue_queue else ""


def _pod(
    launch: Launch,
    words: list[list[str]],
    *,
    restart: str,
    subdomain: str = "",
    start: str = "",
    container: str = "train",
) -> str:
    """Return the spec of a pod."""
    ours, theirs = words[:-1], words[-1]  # the script and its arguments stand last
    command = [word for group in ours for word in group] + [_literal(word) for word in theirs]
    mounts = _mounts(launch)
    return fill(
        "pod.yaml",
        subdomain=f"subdomain: {json.dumps(subdomain)}" if subdomain else "",
        restart=f"restartPolicy: {restart}" if restart else "",
        grace=str(launch.grace_s),
        container=container,
        image=json.dumps(launch.image),
        command=f"[{', '.join(_quoted(word) for word in command)}]",
        start=(f"- name: START\n  valueFrom:\n    fieldRef:\n      fieldPath: {json.dumps(start)}" if start else ""),
        env="\n".join(
            f"- name: {name}\n  value: {_quoted(_literal(value))}" for name, value in environment(launch, restarts=True)
        ),
        resources=(
            f"resources:\n  limits:\n    nvidia.com/gpu: {launch.gpus_per_node}" if launch.device == "cuda" else ""
        ),
        mounts="\n".join(
            f"- name: mount-{number}\n  mountPath: {_quoted(mount.target)}"
            + ("\n  readOnly: true" if mount.read_only else "")
            for number, mount in enumerate(mounts)
        ),
        shm=str(launch.shared_memory_bytes),
        volumes="\n".join(
            f"- name: mount-{number}\n  persistentVolumeClaim:\n    claimName: {_quoted(mount.source)}"
            for number, mount in enumerate(mounts)
        ),
    )


def _mounts(launch: Launch) -> list[Mount]:
    """Return the mounts; the checkpoints must lie on a claim, for a pod's own disk goes with the pod."""
    path = launch.checkpoint_dir
    if not path.startswith("/"):
        raise UsageError(
            f"checkpoint directory {path!r} lies inside the image of the pod and goes with it",
            next=[["outlive", "plan", "--emit", "kubernetes", "--checkpoint-dir", "/ckpt", "--mount", "claim:/ckpt"]],
            safe="Nothing was written.",
        )
    mounts = list(launch.mounts)
    for mount in mounts:
        if "/" in mount.source:
            raise UsageError(
                f"mount source {mount.source!r}: in Kubernetes it is the name of a volume claim",
                safe="Nothing was written.",
            )
    if not any(path == mount.target or path.startswith(mount.target.rstrip("/") + "/") for mount in mounts):
        mounts.append(Mount(source=f"{launch.name}-checkpoints", target=path))
    return mounts


def _quoted(text: str) -> str:
    """Return ``text`` in double quotes, as YAML reads them; JSON but for the signs that YAML takes for line breaks."""
    return _BREAKS.sub(lambda sign: f"\\u{ord(sign[0]):04x}", json.dumps(text, ensure_ascii=False))


def _literal(text: str) -> str:
    """Return ``text`` so that Kubernetes puts nothing in for ``$(NAME)``."""
    return text.replace("$(", "$$(")
