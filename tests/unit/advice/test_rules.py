"""The pages of the rules: every one keeps its own examples, and what is compiled is what is written."""

import pytest

from outlive.advice import compile, rulelint
from outlive.advice.finding import size_of, told
from outlive.advice.literals import alternatives, required
from outlive.advice.pages import pages
from outlive.diagnose.engine import Engine
from outlive.diagnose.rulebook import rulebook
from outlive.diagnose.verdict import judge
from outlive.errors import BadConfig

BY_ENGINE = sorted(id for id, page in pages().items() if "depth" in page)


def hits(line):
    return [hit.rule.id for hit in rulebook().hits(line, line.strip())]


@pytest.mark.parametrize("id", BY_ENGINE)
def test_a_page_fires_on_its_examples_and_on_no_look_alike(id):
    examples = pages()[id]["examples"]
    assert examples["match"]
    for line in examples["match"]:
        assert id in hits(line), line
    for line in examples.get("no_match", []):
        assert id not in hits(line), line


def test_every_catalogue_entry_has_a_page_and_a_home():
    catalogue = [page for page in pages().values() if page["id"][0].isupper()]
    assert len(catalogue) == 260
    assert {page["home"] for page in catalogue} <= set(rulelint.HOMES)


def test_every_class_of_the_taxonomy_has_a_rule_but_the_healthy_one():
    assert {pages()[id]["class"] for id in BY_ENGINE} == rulelint.CLASSES - {"healthy"}


def test_every_page_of_the_engine_says_what_to_do():
    for id in BY_ENGINE:
        assert pages()[id]["fix"] and pages()[id]["cause"] and pages()[id]["remedy"], id


def test_a_wrong_page_is_named_with_its_file(tmp_path):
    folder = tmp_path / "gpu"
    folder.mkdir()
    (folder / "bad.yaml").write_text("id: bad\ntitle: 3\n")
    with pytest.raises(BadConfig) as caught:
        compile.read_rules(tmp_path)
    assert "bad.yaml" in caught.value.file and caught.value.why


@pytest.mark.parametrize(
    ("pattern", "strings"),
    [
        ("(?i)CUDA out of memory", ["cuda out of memory"]),
        ("(?:No space left|ENOSPC)", ["enospc", "no space left"]),
        (r"\d+ oom[-_]kill", ["oom"]),
        (r"\w+", None),
        ("(?:abc)?", None),
    ],
)
def test_required_strings(pattern, strings):
    found = required(pattern)
    assert found == strings or (strings == ["oom"] and found in (["oom"], ["kill"], [" oom"]))


def test_a_pattern_is_split_at_its_outer_bars_only():
    assert alternatives(r"(?i)a(?:b|c)|[|]d|e\|f") == [r"(?i)a(?:b|c)", "(?i)[|]d", r"(?i)e\|f"]


def test_an_out_of_memory_error_is_read_by_its_numbers():
    engine = Engine()
    engine.begin("-")
    engine.feed(
        b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
        b"79.15 GiB of which 1.10 GiB is free. Of the allocated memory 66.00 GiB is allocated by PyTorch, and "
        b"9.80 GiB is reserved by PyTorch but unallocated.\n"
    )
    finding = told(judge(engine)[0], engine.sources)
    assert finding["numbers"]["tried"] == "2.00 GiB" and finding["numbers"]["unalloc"] == "9.80 GiB"
    assert finding["fix"][0].startswith("Fragmentation") and "expandable_segments" in finding["fix"][0]
    assert "U10" in finding["source_ids"]


def test_sizes():
    assert size_of("2.00 GiB") == 2 * 2**30 and size_of("0 bytes") == 0 and size_of("much") is None
