"""A launch that exists is possible; every impossible one is a usage error with what is wrong in its first sentence."""

import pytest

from outlive.errors import UsageError
from outlive.launch.description import Fabric, Launch, Mount


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"nodes": 0}, "nodes must be a whole number"),
        ({"gpus_per_node": -1}, "gpus_per_node must be"),
        ({"micro_batch": 1.5}, "micro_batch must be"),
        ({"accumulation": True}, "accumulation must be"),
        ({"workers": -1}, "workers must be"),
        ({"max_restarts": "3"}, "max_restarts must be"),
        ({"port": 70000}, "port must be below"),
        ({"strategy": "zero4"}, "strategy must be one of"),
        ({"precision": "int4"}, "precision must be one of"),
        ({"recompute": "some"}, "recompute must be one of"),
        ({"clip_norm": float("nan")}, "clip_norm must be"),
        ({"mtbf_s": 0}, "mtbf_s must be above 0"),
        ({"shm_bytes": 5}, "shm_bytes must be"),
        ({"gpus_per_node": 8, "tensor_parallel": 3}, "tensor parallel 3 does not divide the 8 GPUs"),
        ({"nodes": 2, "gpus_per_node": 4, "tensor_parallel": 8}, "tensor parallel 8 does not divide the 4 GPUs"),
        ({"gpus_per_node": 8, "pipeline_parallel": 3}, "does not divide 8 GPUs"),
        ({"gpus_per_node": 8, "expert_parallel": 3}, "expert parallel 3"),
        ({"gpus_per_node": 8, "micro_batch": 2, "global_batch": 8}, "is 16, not the global batch 8"),
        ({"nodes": 2, "hosts": ("a",)}, "1 hosts are named for 2 nodes"),
        ({"hosts": ("a b",)}, "hosts"),
        ({"nodes": 2, "min_nodes": 3}, "min_nodes 3 must be between"),
        ({"nodes": 3, "min_nodes": 1, "gpus_per_node": 2, "pipeline_parallel": 3}, "not a multiple"),
        ({"strategy": "hsdp"}, "with one node that is zero3"),
        ({"name": "My Job"}, "name"),
        ({"name": "x" * 60}, "name"),
        ({"image": "a b"}, "image"),
        ({"env": (("A B", "1"),)}, "env"),
        ({"env": (("A", "1"), ("A", "2"))}, "twice"),
        ({"env": (("A", "1\n2"),)}, "control character"),
        ({"args": ("a\x00b",)}, "control character"),
        ({"args": ("{micro}",)}, "unknown placeholder {micro}"),
        ({"args": ("{",)}, "argument '{'"),
        ({"script": "--flag"}, "script must be a path"),
        ({"checkpoint_dir": ""}, "checkpoint_dir must be a path"),
        ({"mounts": (Mount(source="/a", target="b"),)}, "must be absolute"),
        ({"mounts": (Mount(source="/a,b", target="/b"),)}, "without commas"),
        ({"fabric": Fabric(interface="eth0; rm")}, "fabric.interface"),
        ({"block_classes": ("A.B",)}, "block_classes"),
        ({"kueue_queue": "a b"}, "kueue_queue"),
    ],
)
def test_impossible_is_said(fields, said):
    with pytest.raises(UsageError) as caught:
        Launch(**fields)
    assert said in caught.value.what
    assert caught.value.safe == "Nothing was written."


def test_degrees_and_batches():
    launch = Launch(nodes=4, gpus_per_node=8, tensor_parallel=4, pipeline_parallel=2, micro_batch=3, accumulation=5)
    assert (launch.world, launch.data_parallel, launch.whole_batch) == (32, 4, 60)


def test_placeholders_are_put_in_and_doubled_braces_stay():
    launch = Launch(
        gpus_per_node=2, micro_batch=3, args=("--mb={micro_batch}", "--of={world}", "{{x}}", "{checkpoint_dir}/a")
    )
    assert launch.words() == ["train.py", "--mb=3", "--of=2", "{x}", "out/ckpt/a"]


@pytest.mark.parametrize(
    ("fields", "gib"),
    [
        ({}, 16),
        ({"nodes": 2}, 32),
        ({"gpus_per_node": 8, "workers": 4}, 64),
        ({"gpus_per_node": 8, "workers": 0}, 16),
        ({"shm_bytes": 1 << 30, "gpus_per_node": 8}, 1),
    ],
)
def test_shared_memory_follows_from_workers(fields, gib):
    assert Launch(**fields).shared_memory_bytes == gib << 30
