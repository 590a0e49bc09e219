"""Laws of launch files: what goes into a description comes back out of every file, read as its tool reads it."""

import ast
import contextlib
import json
import shlex

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.errors import UsageError
from outlive.launch.description import STRATEGIES, Fabric, Launch, Mount
from outlive.launch.kinds import KINDS, render

NASTY = [
    "\u2028",
    "\u2029",
    "\ufeff",
    "\U0001f600",
    "$(HOME)",
    "$$(A)",
    "\\",
    "'",
    '"',
    "!",
    "# x",
    "@{header}",
    "",
    " ",
]
SIGNS = st.characters(blacklist_categories=["Cs", "Cc"])
TEXT = st.one_of(st.sampled_from(NASTY), st.text(SIGNS, max_size=12)).map(
    lambda text: text.replace("{", "{{").replace("}", "}}")
)
DEGREES = st.sampled_from([1, 1, 1, 2, 4])


@st.composite
def launches(draw):
    """Draw launches that are possible, with words as nasty as they come."""
    fields = {
        "nodes": draw(st.sampled_from([1, 1, 2, 4])),
        "gpus_per_node": draw(st.sampled_from([1, 2, 4, 8])),
        "strategy": draw(st.sampled_from(STRATEGIES)),
        "tensor_parallel": draw(DEGREES),
        "pipeline_parallel": draw(DEGREES),
        "precision": draw(st.sampled_from(["bf16", "fp16", "fp32"])),
        "micro_batch": draw(st.integers(1, 64)),
        "accumulation": draw(st.integers(1, 64)),
        "offload": draw(st.sampled_from(["none", "none", "optimizer", "all"])),
        "device": draw(st.sampled_from(["cuda", "cpu"])),
        "args": tuple(draw(st.lists(TEXT, max_size=3))),
        "env": (("NOTE", draw(TEXT)),),
        "checkpoint_dir": draw(st.sampled_from(["/ckpt", "/mnt/a b", "ckpt"])),
        "max_restarts": draw(st.integers(0, 5)),
        "workers": draw(st.integers(0, 8)),
        "kueue_queue": draw(st.sampled_from(["", "team-a"])),
        "fabric": draw(st.sampled_from([Fabric(), Fabric(interface="eth0", infiniband=("mlx5_0:1",))])),
        "mounts": draw(st.sampled_from([(), (Mount(source="data", target="/data"),)])),
        "block_classes": ("Block",),
    }
    with contextlib.suppress(UsageError):
        return Launch(**fields)
    return Launch(**{**fields, "strategy": "zero3", "tensor_parallel": 1, "pipeline_parallel": 1})


def words_of(script, program):
    """Return the words that the shell script would start ``program`` with; what is expanded stays as it is written."""
    joined = script.replace("\\\n", " ")
    line = next(line for line in joined.split("\n") if line.strip().startswith((program, "exec " + program)))
    return shlex.split(line.removesuffix("&"))


def from_torchrun(words):
    at = next(i for i, word in enumerate(words) if word.endswith("torchrun"))
    flags = dict(word[2:].partition("=")[::2] for word in words[at:] if word.startswith("--"))
    return int(flags["nnodes"].split(":")[-1]), int(flags["nproc-per-node"]), words[words.index("train.py") :]


def environment_of(script):
    lines = [shlex.split(line) for line in script.split("\n") if line.startswith("export ")]
    return dict(word.partition("=")[::2] for line in lines for word in line[1:])


def pod_of(document):
    spec = document["spec"]
    if document["kind"] == "JobSet":
        spec = spec["replicatedJobs"][0]["template"]["spec"]
    if document["kind"] == "PyTorchJob":
        return spec["pytorchReplicaSpecs"]["Worker"]["replicas"], spec["pytorchReplicaSpecs"]["Worker"]["template"][
            "spec"
        ]
    return spec.get("completions", 1), spec["template"]["spec"]


def constants_of(module):
    values = {}
    for node in ast.parse(module).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            with contextlib.suppress(ValueError):
                values[node.targets[0].id] = ast.literal_eval(node.value)
    return values


def check(launch, kind, rendering):
    main = rendering.main.text
    files = {file.name: file.text for file in rendering.files}
    if kind in ("torchrun", "torchrun-elastic", "slurm", "nsys"):
        program = "srun" if kind == "slurm" else "nsys" if kind == "nsys" else "torchrun"
        if kind == "nsys":
            words = words_of(main, "nsys")
            assert words[words.index("train.py") :] == launch.words()
        else:
            assert from_torchrun(words_of(main, program)) == (launch.nodes, launch.gpus_per_node, launch.words())
        assert environment_of(main)["NOTE"] == dict(launch.env)["NOTE"]
    if kind == "slurm":
        asked = dict(line[10:].partition("=")[::2] for line in main.split("\n") if line.startswith("#SBATCH --"))
        assert (int(asked["nodes"]), int(asked["ntasks-per-node"])) == (launch.nodes, 1)
        assert asked.get("gpus-per-node") == (str(launch.gpus_per_node) if launch.device == "cuda" else None)
    if kind in ("docker", "docker-nodes"):
        words = words_of(main, "docker")
        assert from_torchrun(words) == (launch.nodes, launch.gpus_per_node, launch.words())
        assert f"--env=NOTE={dict(launch.env)['NOTE']}" in words
        assert (f"--gpus={launch.gpus_per_node}" in words) == (launch.device == "cuda")
    if kind in ("kubernetes", "kubernetes-indexed", "jobset", "pytorchjob"):
        document = list(yaml.safe_load_all(main))[-1]
        pods, pod = pod_of(document)
        (container,) = pod["containers"]
        command = [word.replace("$$(", "$(") for word in container["command"]]
        env = {entry["name"]: entry.get("value", "").replace("$$(", "$(") for entry in container["env"]}
        assert pods == launch.nodes and command[command.index("train.py") :] == launch.words()
        assert env["NOTE"] == dict(launch.env)["NOTE"]
        if kind == "pytorchjob":
            assert document["spec"]["nprocPerNode"] == str(launch.gpus_per_node)
        else:
            assert from_torchrun(command)[:2] == (launch.nodes, launch.gpus_per_node)
    if kind == "accelerate":
        config = yaml.safe_load(main)
        assert (config["num_machines"], config["num_processes"]) == (launch.nodes, launch.world)
        parallel = config.get("parallelism_config")
        if parallel:
            product = 1
            for degree in parallel.values():
                product *= degree
            assert product == launch.world
        script = files["launch.sh"]
        assert environment_of(script)["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] == str(launch.accumulation)
        words = words_of(script, "accelerate")
        assert words[words.index("train.py") :] == launch.words()
    if kind == "deepspeed":
        config = json.loads(main)
        micro, steps = config["train_micro_batch_size_per_gpu"], config["gradient_accumulation_steps"]
        assert (micro, steps) == (launch.micro_batch, launch.accumulation)
        assert config["train_batch_size"] == micro * steps * launch.world == launch.whole_batch
        slots = [line.split(" slots=") for line in files["hostfile"].splitlines()]
        assert [int(count) for _, count in slots] == [launch.gpus_per_node] * launch.nodes
        words = words_of(files["launch.sh"], "deepspeed")
        assert words[words.index("train.py") : -2] == launch.words()
    if kind in ("ddp", "fsdp1", "fsdp2"):
        values = constants_of(main)
        assert (values["MICRO_BATCH"], values["ACCUMULATION"]) == (launch.micro_batch, launch.accumulation)
        if kind == "fsdp2":
            assert launch.world % (values["COPIES"] * values["TENSOR"]) == 0
            assert values["TENSOR"] == launch.tensor_parallel
            assert launch.gpus_per_node % values["TENSOR"] == 0


@settings(max_examples=120, deadline=None)
@given(launches(), st.sampled_from(sorted(KINDS)))
def test_what_goes_in_comes_out_of_every_file(launch, kind):
    try:
        rendering = render(launch, kind)
    except UsageError as error:
        assert error.safe == "Nothing was written."
        return
    check(launch, kind, rendering)


@settings(max_examples=60, deadline=None)
@given(launches())
def test_degrees_multiply_to_the_world(launch):
    layout = launch.layout()
    degrees = [layout[f"{name}_parallel"] for name in ("data", "tensor", "pipeline", "context")]
    assert degrees[0] * degrees[1] * degrees[2] * degrees[3] == layout["nodes"] * layout["gpus_per_node"]
    assert layout["micro_batch"] * layout["accumulation"] * degrees[0] == layout["global_batch"]
