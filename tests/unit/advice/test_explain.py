"""explain: questions people ask find the page, a name prints it, and what fits nothing is called weak."""

import functools
import json
import pathlib

import pytest

from outlive import errors
from outlive.advice import named, pages
from outlive.advice.search import Index
from outlive.cli import main as cli

RECORDED = pathlib.Path(__file__).parents[2] / "recorded" / "explain" / "questions.jsonl"


shipped = pages.pages()


@functools.cache
def index():
    return Index.load()


def found(question, limit=3):
    hits, _ = index().search(question, limit)
    return [hit.id for hit in hits]


def outlive(capsys, *words):
    code = cli.main(["explain", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


# ---- the search ----


@pytest.mark.parametrize("half", ["tuning", "held_out", "later"])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_recorded_questions_find_their_page_among_the_first_three(half, lang):
    asked = [
        q for q in map(json.loads, RECORDED.read_text("utf-8").splitlines()) if (q["half"], q["lang"]) == (half, lang)
    ]
    missed = []
    for question in asked:
        hits, _ = index().search(question["q"], 3)
        if not any({hit.id, *hit.source_ids} & set(question["accept"]) for hit in hits):
            missed.append(question["q"])
    assert len(asked) >= 60
    assert len(missed) <= 0.1 * len(asked), missed


@pytest.mark.parametrize(
    ("question", "id"),
    [
        ("loss 不下降", "O1"),
        ("checkpoint 磁盘满 but df shows space", "U7"),
        ("显存不足", "U10"),
        ("爆显存", "U10"),
        ("关机了还在扣费", "CT1"),
        ("CUDA out of memory", "U10"),
        ("RuntimeError: DataLoader worker (pid 88) is killed by signal: Bus error.", "DP15"),
        ("Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 0.5", "P10"),
        ("ＣＵＤＡ　ｏｕｔ　ｏｆ　ｍｅｍｏｒｙ", "U10"),
    ],
)
def test_a_question_finds_its_page(question, id):
    assert id in found(question)


@pytest.mark.parametrize(
    ("told_apart", "id"),
    [
        ("cuda out of memory only in evaluation", "M15"),
        ("cuda out of memory at the second step", "M17"),
        ("cuda out of memory in backward", "M14"),
        ("cuda out of memory after thousands of steps, long sequence", "M16"),
        ("cuda out of memory from fragmentation", "M8"),
        ("cuda out of memory when saving the fsdp checkpoint", "C5"),
        ("显存占用但没有进程", "U11"),
    ],
)
def test_a_refinement_comes_before_what_it_refines(told_apart, id):
    hits = found(told_apart, 10)
    assert hits[0] == id
    assert "U10" not in hits or hits.index("U10") > 0


@pytest.mark.parametrize("misspelt", ["chekpoint corupted", "memroy framgentation gpu", "deepsped hostfle not found"])
def test_a_misspelt_word_is_taken_for_the_nearest_known_one(misspelt):
    right = {"chekpoint": "C2", "memroy": "M8", "deepsped": "D6"}[misspelt.split()[0]]
    assert right in found(misspelt)


@pytest.mark.parametrize("other", ["my cat is hungry", "怎么做红烧肉", "how do I bake sourdough bread", "zzzzqq"])
def test_a_question_about_something_else_is_weak(other):
    hits, weak = index().search(other)
    assert weak


@pytest.mark.parametrize("odd", ["", " ", "?!", "的了吗", "\x00\ud800", "a" * 50_000, "卡" * 20_000, "((((", "🙂🙂"])
def test_odd_input_is_answered(odd):
    hits, weak = index().search(odd)
    assert weak or hits


def test_scores_fall_and_lie_between_nought_and_one():
    hits, _ = index().search("training hangs on several nodes, nccl timeout", 50)
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score <= 1 for score in scores)


def test_a_page_that_only_points_to_another_is_found_there():
    hits, _ = index().search("nvidia-smi gpu util percent meaning")
    assert hits[0].id == "U21" and "T2" in hits[0].source_ids
    assert "T2" not in [hit.id for hit in index().search("see u21", 400)[0]]


def test_every_page_can_be_found_by_its_title():
    folded = {other for doc in index().docs for other in doc[8]}
    for id, page in pages.pages().items():
        if id in folded or id not in {doc[0] for doc in index().docs}:
            continue
        assert id in found(f"{page['title']} {page['slug']}", 5), id


# ---- a page by its name ----


@pytest.mark.parametrize("name", ["U7", "u7", "inodes-exhausted-or-hidden-hog", "O14b"])
def test_a_name_gives_its_page(name):
    page = named.page(name)
    assert page and name.casefold() in (page["id"].casefold(), page["slug"])
    assert page["fix"] and page["title_zh"]


def test_a_pointer_gives_the_page_it_points_to():
    page = named.page("T22")
    assert page["id"] == "M19" and page["also"] == ["T22"]


@pytest.mark.parametrize(("name", "near"), [("U97", "U43"), ("v9", "V7"), ("mn12", "MN6")])
def test_an_unknown_id_is_told_the_nearest(name, near):
    with pytest.raises(errors.UnknownName) as caught:
        named.page(name)
    assert near in caught.value.what and caught.value.next == [["outlive", "explain", near]]


@pytest.mark.parametrize(
    "word", ["oom", "bf16", "fp16", "fsdp", "xid", "a100", "p100", "out-of-memory", "inodes-exhausted"]
)
def test_an_ordinary_word_is_no_name(word):
    assert named.page(word) is None


# ---- the verb ----


def test_results_name_the_page_and_how_to_read_it(capsys):
    code, out, err = outlive(capsys, "no space left but df shows 200 GB free", "--lang", "en")
    assert code == 0 and not err
    assert out.startswith("U7 ") and out.rstrip().endswith("outlive explain U7")


def test_a_chinese_question_is_answered_in_chinese(capsys, monkeypatch):
    monkeypatch.setenv("LC_ALL", "C")
    assert "现象" not in outlive(capsys, "U7")[1]
    assert "inode 用尽" in outlive(capsys, "磁盘还有空间却写不了文件")[1]
    assert "现象" in outlive(capsys, "U7", "--lang", "zh")[1]
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert "现象" in outlive(capsys, "U7")[1]


def test_json_of_a_question(capsys):
    code, out, _ = outlive(capsys, "gpu", "fell", "off", "the", "bus", "--json", "-n", "2")
    data = json.loads(out)
    assert code == 0 and data["schema"] == "outlive/explain/1" and data["weak"] is False
    assert len(data["results"]) == 2
    first = data["results"][0]
    assert (first["id"], first["rule"], first["source_ids"]) == ("U22", "xid-hardware-fault", ["U22"])
    assert 0 < first["score"] <= 1


def test_json_of_a_page(capsys):
    _, out, _ = outlive(capsys, "U7", "--json")
    data = json.loads(out)
    assert data["schema"] == "outlive/explain/1" and data["results"][0]["rule"] == "inodes-exhausted-or-hidden-hog"
    assert data["results"][0]["never_do"]


def test_a_chinese_page_says_cause_and_fix_in_chinese(capsys):
    _, out, _ = outlive(capsys, "U9", "--lang", "zh")
    assert "1. 用 oom_kill 计数确认" in out and "原因\n  fork 出的每个 worker" in out


def test_a_translation_with_other_steps_than_the_page_is_not_shown(monkeypatch):
    page = dict(pages.pages()["U9"])
    page["fix"] = page["fix"][:2]
    monkeypatch.setattr(pages, "pages", lambda: {**shipped, "U9": page})
    assert named.page("U9")["fix_zh"] == []


def test_weak_is_said(capsys):
    code, out, _ = outlive(capsys, "my cat is hungry and the printer too", "--lang", "en")
    assert code == 0 and ("Nothing fits well" in out or "Nothing was found" in out)
    assert json.loads(outlive(capsys, "my cat is hungry", "--json")[1])["weak"] is True


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", ["30", "200"])
def test_every_page_prints_in_both_languages(capsys, monkeypatch, lang, width):
    from outlive.views import explain_view, printable

    for id in pages.pages():
        page = named.page(id)
        lines = explain_view.page_lines(page, lang, int(width))
        assert len(lines) > 10 and all("\n" not in line for line in lines)
        folded = [line for line in lines[4:] if " " not in line.strip()[2:]]
        assert all(printable.width(line) <= max(int(width), 22) or line.isascii() for line in folded), folded


def test_no_words_is_a_usage_error_with_an_example(capsys):
    code, out, err = outlive(capsys)
    assert code == 2 and not out and "outlive explain" in err


def test_no_results_at_all_is_a_usage_error(capsys):
    assert outlive(capsys, "oom", "-n", "0")[0] == 2


def test_unknown_id_is_a_usage_error(capsys):
    code, _, err = outlive(capsys, "U97")
    assert code == 2 and "did you mean" in err
