"""Words: what is one word and what is not, and that the data beside the rules is whole."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.advice import index, pages, words

CONCEPTS = index.read_concepts()
LEXICON = words.Lexicon.of(CONCEPTS)


def concepts(text):
    return {term[1:] for term in words.terms(text, LEXICON) if term[0] == "@"}


@pytest.mark.parametrize(
    "same",
    [
        ("resume", "resumes", "resumed", "resuming"),
        ("normalise", "normalize", "normalisation", "normalizing"),
        ("stop", "stops", "stopped", "stopping"),
        ("colour", "colours", "color"),
        ("memory", "memories"),
        ("crash", "crashes", "crashed"),
    ],
)
def test_endings_do_not_tell_words_apart(same):
    assert len({words.stem(word) for word in same}) == 1


@pytest.mark.parametrize("pair", [("loss", "los"), ("class", "clas"), ("rank", "ran"), ("137", "13")])
def test_different_words_stay_different(pair):
    assert words.stem(pair[0]) != words.stem(pair[1])


@pytest.mark.parametrize(
    ("one", "other", "concept"),
    [
        ("爆显存了", "cuda out of memory", "vram-oom"),
        ("显存溢出", "显存不够", "vram-oom"),
        ("小文件太多", "too many files", "inode"),
        ("loss 不收敛", "does not learn", "not-learning"),
        ("程序卡死", "it hangs", "stuck"),
        ("断连", "connection reset", "disconnect"),
        ("断点续训", "resuming", "resume"),
        ("学习率", "learning rate", "lr"),
        ("梯度爆炸", "exploding gradients", "grad-explode"),
        ("数据加载慢", "the dataloader", "dataloader"),
        ("GPU 利用率低", "gpu utilization", "utilisation"),
        ("停止计费", "charged", "billing"),
        ("镜像", "docker image", "image-tag"),
        ("换源", "mirror", "mirror"),
        ("代理", "no_proxy", "proxy"),
        ("磁盘满", "no space left", "disk-full"),
        ("没有权限", "permission denied", "permission"),
    ],
)
def test_both_languages_mean_one_thing(one, other, concept):
    assert concept in concepts(one) and concept in concepts(other)


def test_names_are_also_taken_apart():
    assert {"gradscaler", "grad", "scaler"} <= set(words.terms("GradScaler", LEXICON))
    assert {"weights_only", "weight"} <= set(words.terms("weights_only", LEXICON))


def test_blanks_between_scripts_do_not_matter():
    assert concepts("8卡训练") == concepts("8 卡 训练")


@pytest.mark.parametrize(
    ("one", "other", "away"),
    [
        ("same", "same", 0),
        ("teh", "the", 1),
        ("memroy", "memory", 1),
        ("chekpoint", "checkpoint", 1),
        ("abc", "xyz", 3),
    ],
)
def test_distance(one, other, away):
    assert words.distance(one, other, 3) == away
    assert words.distance(other, one, 3) == away


def test_distance_stops_at_its_limit():
    assert words.distance("abcdef", "uvwxyz", 2) == 3


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_any_text_has_terms_and_asking_again_gives_the_same(text):
    terms = words.terms(text, LEXICON)
    assert terms == words.terms(text, LEXICON)
    assert all(term and not re.search(r"\s|;", term) for term in terms)


def test_every_entry_is_written_about_in_both_languages():
    asked = index.read_asked()
    for id, page in pages.pages().items():
        if not index.ENTRY.fullmatch(id):
            continue
        assert id in asked, f"{page['family']}/{page['slug']}: nothing in advice/asked"
        han = [line for line in asked[id]["asked"] if words.IS_HAN.search(line)]
        assert words.IS_HAN.search(asked[id]["title"] + asked[id]["seen"])
        assert len(han) >= 2 and len(asked[id]["asked"]) - len(han) >= 2, id


def test_no_two_entries_are_asked_for_in_the_same_words():
    seen = {}
    pointers = index.same_as(pages.pages())
    for id, entry in index.read_asked().items():
        id = pointers.get(id, id)
        for line in entry["asked"]:
            assert seen.setdefault(line.casefold(), id) == id, line


def test_a_faulty_source_is_named_with_its_file_and_key(tmp_path):
    (tmp_path / "x.yaml").write_text("U1:\n  title: t\n  asked: [a]\n", "utf-8")
    with pytest.raises(index.BadConfig) as caught:
        index.read_asked(tmp_path)
    assert "x.yaml" in caught.value.sentence() and "U1" in caught.value.sentence()
    (tmp_path / "x.yaml").write_text("oom: memory\n", "utf-8")
    with pytest.raises(index.BadConfig) as caught:
        index.read_concepts(tmp_path)
    assert "oom" in caught.value.sentence()
