import pytest

from outlive.platforms.load import load
from outlive.platforms.recognise import holding, recognise, wanted


@pytest.mark.parametrize(
    "readings,id",
    [
        ({"env": {"AutoDLContainerUUID": "abc"}}, "autodl"),
        ({"path": ["/root/autodl-tmp", "/root"]}, "autodl"),
        ({"hostname": "autodl-container-b3a8-11"}, "autodl"),
        ({"address": "connect.westb.seetacloud.com"}, "autodl"),
        ({"env": {"RUNPOD_POD_ID": "x1"}}, "runpod"),
        ({"mount": {"/workspace": "mfs#euro-3.runpod.net:9421 fuse"}}, "runpod"),
        ({"env": {"VAST_CONTAINERLABEL": "C.1"}}, "vastai"),
        ({"env": {"KAGGLE_KERNEL_RUN_TYPE": "Batch"}}, "kaggle"),
        ({"env": {"COLAB_RELEASE_TAG": "release"}}, "colab"),
        ({"env": {"SLURM_JOB_ID": "7"}}, "slurm"),
        ({"env": {"PAPERSPACE_FQDN": "n.paperspacegradient.com"}}, "paperspace"),
        ({"path": ["/lambda/nfs"]}, "lambda"),
        ({"path": ["/hy-tmp"]}, "hengyuanyun"),
        ({"address": "hz-t2.matpool.com"}, "matpool"),
        ({"path": ["/home/user/datadisk"]}, "lanrui"),
        ({"env": {"FEATURIZE_INSTANCE_ID": "9"}}, "featurize"),
        ({"env": {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}}, "kubernetes"),
    ],
)
def test_each_platform_is_known_by_what_its_boxes_show(readings, id):
    found = recognise(readings)
    assert [name for name, _ in found] == [id]
    assert found[0][1]


def test_a_rental_that_runs_on_kubernetes_is_that_rental():
    both = {"env": {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "RUNPOD_POD_ID": "x"}}
    assert [name for name, _ in recognise(both)] == ["runpod"]


def test_a_file_that_two_lenders_have_decides_nothing_against_a_strong_hint():
    assert [n for n, _ in recognise({"path": ["/etc/network_turbo", "/hy-tmp"]})] == ["hengyuanyun"]


def test_an_ordinary_machine_is_nobodys():
    assert recognise({}) == []
    assert recognise({"env": {"HOME": "/root", "RUNPOD_POD_ID": ""}, "path": ["/root"], "hostname": "desk"}) == []


def test_more_hints_come_first():
    found = recognise({"env": {"RUNPOD_POD_ID": "x", "RUNPOD_DC_ID": "y"}, "address": "ssh4.vast.ai"})
    assert [name for name, _ in found] == ["runpod", "vastai"]


def test_what_to_read_is_told_from_the_index_alone():
    names = wanted()
    assert "RUNPOD_POD_ID" in names["env"] and "/root/autodl-tmp" in names["path"]
    assert "/hy-netdisk" in names["mount"]  # a condition's hint, not a platform's
    assert "/workspace" in names["path"] and "SCRATCH" in names["env"]  # tiers: is this one there?
    assert names["hostname"] == []


def test_conditions_hold_are_absent_or_are_unknown():
    p = load("hengyuanyun")
    assert holding(p, {"mount": {"/hy-netdisk": "nfs4"}}) == (["netdisk"], [])
    assert holding(p, {}) == ([], ["netdisk", "shared-storage"])
    assert holding(load("runpod"), {"mount": {"/workspace": "mfs#eu.runpod.net:9421 fuse"}}) == ([], ["network-volume"])


def test_a_new_file_is_recognised_too(with_moonbase, tmp_path):
    assert recognise({"env": {"MOONBASE_BOX": "1"}}, compiled=with_moonbase)[0] == ("moonbase", "MOONBASE_BOX is set")
    said = recognise({"file": {"/etc/moon-release": "lunar 3"}}, compiled=with_moonbase)
    assert said == [("moonbase", "/etc/moon-release says `lunar`")]
    assert "/etc/moon-release" in wanted(compiled=with_moonbase)["file"]
