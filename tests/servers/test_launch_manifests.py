"""Emitted manifests against the published schemas: core objects by kubernetes-validate, others by their definitions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from servers.launched import need

from outlive.launch.description import Fabric, Launch, Mount
from outlive.launch.kinds import render

RECORDED = Path(__file__).parents[1] / "recorded" / "kubernetes"
VERSIONS = ["1.31", "1.37"]


def plan(**fields: object) -> Launch:
    plain = {
        "name": "llama-8b", "nodes": 2, "gpus_per_node": 8, "strategy": "zero3", "checkpoint_dir": "/ckpt/run",
        "mounts": (Mount(source="data", target="/data", read_only=True),),
        "args": ("--note", "it's $(HOME) {{x}} \"q\""),
        "kueue_queue": "team-a", "fabric": Fabric(interface="eth0"), "block_classes": ("LlamaDecoderLayer",),
    }  # fmt: skip
    return Launch(**{**plain, **fields})  # type: ignore[arg-type]


def documents(kind: str, **fields: object) -> list[dict[str, object]]:
    return list(yaml.safe_load_all(render(plan(**fields), kind).main.text))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["kubernetes", "kubernetes-indexed"])
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_core_objects_are_valid(kind, version, device):
    need("kubernetes_validate")
    import kubernetes_validate

    found = list(documents(kind, device=device, nodes=1 if kind == "kubernetes" else 3))
    assert found, "nothing was rendered, so nothing would be checked"
    for document in found:
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize(("kind", "schema"), [("jobset", "jobset.json"), ("pytorchjob", "pytorchjob.json")])
def test_custom_objects_are_what_their_definition_says(kind, schema):
    need("jsonschema")
    import jsonschema

    (document,) = documents(kind)
    jsonschema.validate(document, json.loads((RECORDED / schema).read_text()))


@pytest.mark.parametrize(
    ("kind", "to_pods"),
    [
        ("jobset", lambda d: d["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]),
        ("pytorchjob", lambda d: d["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]),
    ],
)
def test_pods_of_custom_objects_are_valid(kind, to_pods):
    need("kubernetes_validate")
    import kubernetes_validate

    (document,) = documents(kind)
    spec = dict(to_pods(document)["spec"])
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}
    kubernetes_validate.validate(pod, VERSIONS[-1], strict=True)


def test_a_wrong_field_is_noticed():
    need("jsonschema", "kubernetes_validate")
    import jsonschema
    import kubernetes_validate

    (document,) = documents("jobset")
    document["spec"]["replicatedJobz"] = []
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, json.loads((RECORDED / "jobset.json").read_text()))
    (job,) = documents("kubernetes", nodes=1)
    job["spec"]["backoffLimitz"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("kind", ["kubernetes", "kubernetes-indexed", "jobset", "pytorchjob"])
def test_queue_label_and_suspension_go_together(kind):
    nodes = 1 if kind == "kubernetes" else 2
    queued = documents(kind, nodes=nodes)[-1]
    assert queued["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "team-a"}
    holder = queued["spec"]["runPolicy"] if kind == "pytorchjob" else queued["spec"]
    assert holder["suspend"] is True
    plain = documents(kind, nodes=nodes, kueue_queue="")[-1]
    assert "labels" not in plain["metadata"] and "suspend" not in json.dumps(plain)


def test_every_pod_mounts_the_checkpoints_and_knows_its_start():
    service, job = documents("kubernetes-indexed")
    pod = job["spec"]["template"]["spec"]
    assert service["metadata"]["name"] == pod["subdomain"] == job["metadata"]["name"]
    (container,) = pod["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    claims = {v["name"]: v["persistentVolumeClaim"]["claimName"] for v in pod["volumes"] if "emptyDir" not in v}
    assert {claims[name]: mounts[name] for name in claims} == {"data": "/data", "llama-8b-checkpoints": "/ckpt/run"}
    assert "--rdzv-id=$(START)" in container["command"]
    assert container["env"][0]["valueFrom"]["fieldRef"]["fieldPath"].endswith("['batch.kubernetes.io/controller-uid']")
    assert container["command"][-1] == 'it\'s $$(HOME) {x} "q"'  # what looked like a variable stays a text
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
