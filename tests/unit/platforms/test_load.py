import json
import subprocess
import sys
import time

import pytest

from outlive.errors import BadConfig, UnknownName
from outlive.platforms.load import COMPILED, all_ids, load, user_dir

FIFTEEN = (
    "autodl colab featurize hengyuanyun kaggle kubernetes lambda lanrui "
    "local matpool paperspace runpod slurm ssh vastai"
)


def test_all_fifteen_platforms_load():
    assert " ".join(all_ids()) == FIFTEEN
    for id in all_ids():
        assert load(id).id == id


def test_an_unknown_id_names_the_nearest():
    with pytest.raises(UnknownName) as error:
        load("runpood")
    assert "did you mean `runpod`?" in error.value.sentence()
    assert error.value.exit_code == 2


def test_loading_is_quick():
    load("vastai")
    best = min(_timed() for _ in range(5))
    assert best < 0.005


def _timed() -> float:
    start = time.perf_counter()
    load("vastai")
    return time.perf_counter() - start


def test_the_program_reads_no_yaml():
    code = "import sys; from outlive.platforms.load import load; load('autodl'); print('yaml' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_autodl_parks_by_hand_and_its_file_storage_outlives_it():
    p = load("autodl")
    verb = p.verb(p.meter_stop_verb)
    assert (verb.name, verb.label.zh, verb.role, verb.reversible) == ("power_off", "关机", "pause", "yes")
    assert verb.by_hand() and not verb.by_hand(["pro"])
    assert p.verb("stop") is verb
    assert [t.path for t in p.tiers_for("root")] == ["/root/autodl-tmp"]
    assert p.safe_tiers("destroy") == ("file-storage", "nas", "public-data")
    assert p.tier("file-storage").inode_cap == 200000
    assert p.self_stop is not None and p.self_stop.verb == "power_off"
    assert p.relaunch_hook is None


def test_the_nas_is_absent_on_tidal_boxes():
    p = load("autodl")
    assert [t.name for t in p.tiers_for("durable")] == ["file-storage", "nas"]
    assert [t.name for t in p.tiers_for("durable", ["tidal"])] == ["file-storage"]
    assert [t.name for t in p.tiers_for("durable", [])] == ["file-storage", "nas"]


def test_own_machines_have_no_meter_and_lose_nothing():
    p = load("local")
    assert p.meter_stop_verb == "none" and not p.has_meter
    assert p.full_meter_stop == () and p.bills_after([]) == ()
    assert p.lost_by("none") == ()
    assert [t.name for t in p.tiers_for("root")] == ["own-disk"]
    with pytest.raises(UnknownName):
        p.verb("destroy")


def test_any_ssh_box_is_stopped_by_a_person():
    p = load("ssh")
    verb = p.verb(p.meter_stop_verb)
    assert verb.by_hand() and verb.reversible == "no" and len(verb.steps) == 3
    assert set(p.lost_by("destroy")) == {"home-disk", "attached-volume"}
    assert p.tiers_for("durable") == ()


def test_paperspace_bills_until_its_last_part_is_gone():
    p = load("paperspace")
    left = [[m.id for m in p.bills_after(p.full_meter_stop[:n])] for n in range(len(p.full_meter_stop) + 1)]
    assert left[1] == ["storage", "static-ip", "snapshots", "shared-drives"]
    assert left[2] == ["static-ip", "snapshots", "shared-drives"]
    assert left[-1] == []


def test_a_volume_that_may_not_be_there_is_no_safe_place():
    p = load("runpod")
    assert [t.name for t in p.tiers_for("durable", [])] == []
    assert [t.name for t in p.tiers_for("root", [])] == ["volume-disk"]
    assert [t.name for t in p.tiers_for("root", ["network-volume"])] == ["network-volume"]


@pytest.mark.parametrize(
    "id,path,tier",
    [
        ("autodl", "/root/autodl-tmp/run/x", "data-disk"),
        ("autodl", "/root/autodl-tmpx", "system-disk"),
        ("autodl", "/opt/x", "system-disk"),
        ("autodl", "/root/autodl-fs", "file-storage"),
        ("featurize", "/home/featurize/work/a", "work"),
        ("featurize", "/home/featurize/b", "system"),
        ("kaggle", "/kaggle/working/out", "working"),
        ("kubernetes", "/checkpoints", "container-layer"),
        ("local", "/anything", None),
    ],
)
def test_which_tier_a_file_lies_on(id, path, tier):
    found = load(id).tier_of(path)
    assert (found.name if found else None) == tier


def test_a_volume_that_was_perhaps_never_attached_does_not_make_its_path_safe():
    runpod, vast = load("runpod"), load("vastai")
    assert runpod.tier_of("/workspace/out").name == "volume-disk"
    assert runpod.tier_of("/workspace/out", ["network-volume"]).name == "network-volume"
    assert vast.tier_of("/data/out").name == "instance-disk"
    assert vast.tier_of("/data/out", ["local-volume"]).name == "local-volume"


class TestOverrides:
    def test_a_users_fact_wins_and_is_named(self, tmp_path):
        (tmp_path / "autodl.yaml").write_text(
            "tiers:\n  - name: data-disk\n    size_cap_bytes: 200000000000\nconfidence: reported\n"
        )
        before = (COMPILED / "autodl.json").read_bytes()
        p = load("autodl", overrides=tmp_path)
        assert p.tier("data-disk").size_cap_bytes == 200000000000
        assert p.tier("data-disk").path == "/root/autodl-tmp"
        assert p.overridden == ("tiers[data-disk].size_cap_bytes", "confidence")
        assert (COMPILED / "autodl.json").read_bytes() == before
        assert load("autodl").overridden == ()

    def test_yes_and_no_are_words_without_quotes(self, tmp_path):
        (tmp_path / "ssh.yaml").write_text("spot: {available: yes, can_flush: no}\n")
        p = load("ssh", overrides=tmp_path)
        assert (p.spot.available, p.spot.can_flush) == ("yes", "no")

    def test_a_pessimistic_correction_of_one_place_is_enough(self, tmp_path):
        (tmp_path / "autodl.json").write_text('{"tiers": [{"name": "nas", "survives_destroy": "no"}]}')
        assert "nas" in load("autodl", overrides=tmp_path).lost_by("release")

    def test_an_optimistic_correction_of_one_place_is_not(self, tmp_path):
        (tmp_path / "autodl.json").write_text('{"tiers": [{"name": "data-disk", "survives_destroy": "yes"}]}')
        assert "data-disk" in load("autodl", overrides=tmp_path).lost_by("release")

    def test_what_does_not_fit_is_refused_with_its_place(self, tmp_path):
        (tmp_path / "autodl.yaml").write_text("spot:\n  avialable: maybe\n")
        with pytest.raises(BadConfig) as error:
            load("autodl", overrides=tmp_path)
        assert error.value.key == "spot.avialable"
        assert "did you mean `available`?" in error.value.sentence()
        assert "shipped facts are untouched" in error.value.safe

    def test_a_file_of_another_name_is_refused(self, tmp_path):
        (tmp_path / "autodl.yaml").write_text("id: autodi\n")
        with pytest.raises(BadConfig):
            load("autodl", overrides=tmp_path)

    def test_broken_yaml_is_named_with_its_line(self, tmp_path):
        (tmp_path / "autodl.yaml").write_text("confidence: reported\nspot: [\n")
        with pytest.raises(BadConfig) as error:
            load("autodl", overrides=tmp_path)
        assert error.value.line is not None

    def test_a_key_written_twice_is_refused(self, tmp_path):
        (tmp_path / "autodl.yaml").write_text("confidence: reported\nconfidence: documented\n")
        with pytest.raises(BadConfig) as error:
            load("autodl", overrides=tmp_path)
        assert (error.value.key, error.value.line) == ("confidence", 2)

    def test_a_whole_new_platform_of_ones_own(self, tmp_path, moonbase):
        (tmp_path / "moonbase.json").write_text(json.dumps(moonbase))
        assert "moonbase" in all_ids(overrides=tmp_path)
        assert load("moonbase", overrides=tmp_path).names.en == "Moonbase"

    def test_where_a_users_facts_lie(self, tmp_path):
        assert user_dir({"XDG_CONFIG_HOME": "/x"}).as_posix() == "/x/outlive/platforms"
        assert user_dir({"HOME": "/h"}).as_posix() == "/h/.config/outlive/platforms"
        assert all_ids(overrides=tmp_path / "none") == all_ids()
