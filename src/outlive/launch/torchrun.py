"""torchrun: static (all or nothing, a node has a number) and elastic (starts again by itself)."""

from __future__ import annotations

from outlive.errors import UsageError
from outlive.launch.description import Launch
from outlive.launch.files import File, Rendering
from outlive.launch.fill import fill
from outlive.launch.network import environment
from outlive.launch.shell import Raw, exports, lines, need_checkpoints, quote


def argv(launch: Launch, *meeting: str, nodes: str = "", restarts: int = 0) -> list[list[str]]:
    """Return the words of torchrun in groups; ``meeting`` says how the nodes find each other."""
    return [
        ["torchrun", f"--nnodes={nodes or launch.nodes}", f"--nproc-per-node={launch.gpus_per_node}"],
        list(meeting),
        [f"--max-restarts={restarts}"],
        launch.words(),
    ]


def meeting_host(launch: Launch, what: str = "MASTER_ADDR") -> str:
    """Return the shell line that sets the node where the others meet."""
    if launch.hosts:
        return f"{what}=${{{what}:-{launch.hosts[0]}}}"
    return f"{what}=${{{what}:?set it to the name or address of the first node, the same on every node}}"


def render_static(launch: Launch) -> Rendering:
    """``torchrun``: the same file on every node, with the node's number as its argument."""
    if launch.min_nodes not in (None, launch.nodes):
        raise UsageError(
            f"torchrun with node numbers needs all {launch.nodes} nodes; min_nodes {launch.min_nodes} is elastic",
            next=[["outlive", "plan", "--emit", "torchrun-elastic"]],
            safe="Nothing was written.",
        )
    common = {
        "header": launch.header(),
        "environment": exports(environment(launch)),
        "checkpoints": need_checkpoints(launch),
    }
    if launch.nodes == 1:
        text = fill("torchrun.sh", **common, command=lines(_exec(argv(launch, "--standalone"))))
        return Rendering((File("launch.sh", text, "starts the work on this node", True),), ("sh launch.sh",))
    command = argv(
        launch, Raw('--node-rank="$NODE"'), Raw('--master-addr="$MASTER_ADDR"'), Raw('--master-port="$MASTER_PORT"')
    )
    text = fill(
        "torchrun-nodes.sh",
        **common,
        nodes=str(launch.nodes),
        last=str(launch.nodes - 1),
        meeting=f"{meeting_host(launch)}\nMASTER_PORT=${{MASTER_PORT:-{launch.port}}}",
        command=lines(_exec(command)),
    )
    return Rendering(
        (File("launch.sh", text, "starts one node; its argument is the node's number, from 0", True),),
        each_node(launch, "sh launch.sh {node}"),
    )


def render_elastic(launch: Launch) -> Rendering:
    """``torchrun-elastic``: the same line on every node; a crash starts all again, a lost node is waited for."""
    least = launch.min_nodes or launch.nodes
    spread = str(launch.nodes) if least == launch.nodes else f"{least}:{launch.nodes}"
    if launch.nodes == 1:
        meeting: list[str] = ["--standalone"]  # c10d on a free port, under an id of its own
        start = ""
    else:
        meeting = [
            "--rdzv-backend=c10d",
            Raw('--rdzv-id="$START"'),
            Raw('--rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT"'),
            Raw('--rdzv-conf="join_timeout=600,last_call_timeout=30${IS_HOST:+,is_host=$IS_HOST}"'),
            Raw('${LOCAL_ADDR:+--local-addr="$LOCAL_ADDR"}'),
        ]
        start = fill(
            "torchrun-elastic-start.sh", meeting=f"{meeting_host(launch)}\nMASTER_PORT=${{MASTER_PORT:-{launch.port}}}"
        )
    command = argv(launch, *meeting, nodes=spread, restarts=launch.max_restarts)
    text = fill(
        "torchrun-elastic.sh",
        header=launch.header(),
        environment=exports(environment(launch, restarts=True)),
        checkpoints=need_checkpoints(launch),
        spread=spread.replace(":", " to ") + (" node" if launch.nodes == 1 else " nodes"),
        restarts=str(launch.max_restarts),
        start=start,
        command=lines(_exec(command)),
    )
    typed = ("sh launch.sh",) if launch.nodes == 1 else each_node(launch, "sh launch.sh start-1")
    return Rendering((File("launch.sh", text, "starts one node, the same line on each", True),), typed)


def _exec(command: list[list[str]]) -> list[list[str]]:
    return [["exec", *command[0]], *command[1:]]


def each_node(launch: Launch, line: str) -> tuple[str, ...]:
    """Return what to type on each node, the first one first."""
    hosts = launch.hosts or tuple(f"node {number}" for number in range(launch.nodes))
    return tuple(
        f"{line.format(node=number)}   # on {quote(host) if launch.hosts else host}"
        for number, host in enumerate(hosts)
    )
