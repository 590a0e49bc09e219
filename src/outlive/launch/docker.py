"""Docker: one node, and the command of each of several nodes."""

from __future__ import annotations

from outlive.errors import UsageError
from outlive.launch.description import Launch, Mount
from outlive.launch.files import File, Rendering
from outlive.launch.fill import fill
from outlive.launch.network import environment
from outlive.launch.shell import Raw, lines, need_checkpoints
from outlive.launch.torchrun import argv, each_node, meeting_host

CODE = "/work"
STACK_BYTES = 64 << 20


def render_one(launch: Launch) -> Rendering:
    """``docker``: a detached container that starts again by itself inside, and keeps its name until it is removed."""
    if launch.nodes != 1:
        raise UsageError(
            f"`docker` is for one node, this plan has {launch.nodes}",
            next=[["outlive", "plan", "--emit", "docker-nodes"]],
            safe="Nothing was written.",
        )
    words = [*_run(launch, restarts=True), *argv(launch, "--standalone", restarts=launch.max_restarts)]
    text = fill(
        "docker.sh",
        header=launch.header(),
        name=launch.name,
        checkpoints=need_checkpoints(launch, _here(launch)),
        command=lines(words),
    )
    return Rendering((File("docker.sh", text, "starts the container", True),), ("sh docker.sh",))


def render_nodes(launch: Launch) -> Rendering:
    """``docker-nodes``: the same file on every node, on the host's network, with the same checkpoint mount on each."""
    if launch.nodes < 2:
        raise UsageError(
            "`docker-nodes` is for several nodes, this plan has one",
            next=[["outlive", "plan", "--emit", "docker"]],
            safe="Nothing was written.",
        )
    if launch.min_nodes not in (None, launch.nodes):
        raise UsageError(
            f"containers with node numbers need all {launch.nodes} nodes; min_nodes is not possible here",
            safe="Nothing was written.",
        )
    words = _run(launch, restarts=False)
    words += argv(
        launch, Raw('--node-rank="$NODE"'), Raw('--master-addr="$MASTER_ADDR"'), Raw('--master-port="$MASTER_PORT"')
    )
    text = fill(
        "docker-nodes.sh",
        header=launch.header(),
        name=launch.name,
        nodes=str(launch.nodes),
        last=str(launch.nodes - 1),
        meeting=f"{meeting_host(launch)}\nMASTER_PORT=${{MASTER_PORT:-{launch.port}}}",
        checkpoints=need_checkpoints(launch, _here(launch)),
        command=lines(words),
    )
    return Rendering(
        (File("docker.sh", text, "starts one node; its argument is the node's number, from 0", True),),
        each_node(launch, "sh docker.sh {node}"),
    )


def _run(launch: Launch, *, restarts: bool) -> list[list[str]]:
    groups: list[list[str]] = [["docker", "run", "--detach", f"--name={launch.name}", "--init"]]
    if launch.device == "cuda":
        groups.append([f"--gpus={launch.gpus_per_node}"])
    groups.append([f"--shm-size={launch.shared_memory_bytes}", "--ulimit=memlock=-1", f"--ulimit=stack={STACK_BYTES}"])
    if launch.nodes > 1:
        groups.append(["--network=host"])
        if launch.fabric.infiniband:
            groups.append(["--device=/dev/infiniband", "--cap-add=IPC_LOCK"])
    groups.append([f"--stop-timeout={launch.grace_s}"])  # `docker stop` leaves time for the last save
    groups.append([Raw('--mount="type=bind,source=$PWD,target=' + CODE + '"'), f"--workdir={CODE}"])
    groups += [[mount] for mount in _mounts(launch)]
    groups += [[f"--env={name}={value}"] for name, value in environment(launch, restarts=restarts)]
    groups.append([launch.image])
    return groups


def _mounts(launch: Launch) -> list[str]:
    """Return the mounts: an existing directory or a refusal, where `--volume` would make an empty one."""
    mounts = list(launch.mounts)
    if launch.checkpoint_dir.startswith("/") and not any(_holds(mount, launch.checkpoint_dir) for mount in mounts):
        if "," in launch.checkpoint_dir or '"' in launch.checkpoint_dir:
            raise UsageError("a checkpoint directory without commas and quotes is needed", safe="Nothing was written.")
        mounts.append(Mount(source=launch.checkpoint_dir, target=launch.checkpoint_dir))
    elif launch.nodes > 1 and not launch.checkpoint_dir.startswith("/"):
        raise UsageError(
            f"checkpoint directory {launch.checkpoint_dir!r} lies in the code of each node; several nodes need one "
            "that all of them have mounted",
            next=[["outlive", "plan", "--emit", "docker-nodes", "--checkpoint-dir", "/mnt/shared/ckpt"]],
            safe="Nothing was written.",
        )
    words = []
    for mount in mounts:
        words.append(
            f"--mount=type=bind,source={mount.source},target={mount.target}{',readonly' if mount.read_only else ''}"
        )
    return words


def _holds(mount: Mount, path: str) -> bool:
    return path == mount.target or path.startswith(mount.target.rstrip("/") + "/")


def _here(launch: Launch) -> str:
    """Return the checkpoint directory as the node itself sees it."""
    for mount in launch.mounts:
        if _holds(mount, launch.checkpoint_dir):
            return mount.source.rstrip("/") + launch.checkpoint_dir[len(mount.target.rstrip("/")) :]
    return launch.checkpoint_dir
