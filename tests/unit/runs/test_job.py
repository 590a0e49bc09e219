"""``outlive.toml``: what it may say, and where and how a wrong one is told."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive import errors
from outlive.runs import job as jobs
from outlive.runs.job import FILE, KEYS, Job, Stage, job_name, load, money, read, seconds, size_bytes


def job(tmp_path: Path, text: str) -> Job:
    (tmp_path / FILE).write_text(text, "utf-8")
    return read(tmp_path / FILE)


def bad(tmp_path: Path, text: str) -> errors.BadConfig:
    with pytest.raises(errors.BadConfig) as caught:
        job(tmp_path, text)
    assert caught.value.file == str(tmp_path / FILE)
    assert caught.value.exit_code == 2 and caught.value.safe == "Nothing was pushed or started."
    return caught.value


FULL = """\
[job]
name = "tiny-gpt"
smoke = "python train.py --limit-batches 2"
[[stage]]
name = "prepare"
run = "python prepare.py"
produces = ["data/*.bin"]
[[stage]]
run = "python train.py --data {data}"
always = true
[setup]
run = "pip install -r requirements.txt"
inputs = ["requirements.txt"]
[resources]
gpu = "A100:1"
disk = "1.5GB"
inodes = 2000
[artifacts]
checkpoints = "out/ckpt"
roster = ["out/best.pt", "out/*.json"]
keep = { latest = 2, best = 1, every = "1h" }
[durable]
to = "rclone:store:bucket"
[retry]
max = 5
wait_s = 0.5
[env]
HF_HOME = "{data}/hf"
SEED = 7
[secrets]
WANDB_API_KEY = "env:MY_WANDB"
keep = "box"
[budget]
max_hours = 1.5
max_cost = "20 USD"
[notify]
urls = ["env:HOOK"]
[watch]
stall = "15m"
scan = "2"
[push]
crlf = "keep"
data = ["/here:there"]
"""


def test_every_key_arrives(tmp_path: Path) -> None:
    found = job(tmp_path, FULL)
    assert found.name == "tiny-gpt" and found.project == tmp_path
    assert found.stages == (
        Stage("prepare", "python prepare.py", ("data/*.bin",)),
        Stage("stage2", "python train.py --data {data}", (), True),
    )
    assert (found.disk_bytes, found.disk_inodes, found.gpu) == (1_500_000_000, 2000, "A100:1")
    assert found.keep == {"latest": 2, "best": 1, "every_s": 3600.0}
    assert (found.retry_max, found.retry_wait_s) == (5, 0.5)
    assert found.env == {"HF_HOME": "{data}/hf", "SEED": "7"}
    assert found.secrets == {"WANDB_API_KEY": "MY_WANDB"} and found.secrets_keep == "box"
    assert (found.max_s, found.max_cost) == (5400.0, (20.0, "USD"))
    assert found.notify == ("env:HOOK",) and found.limits == {"stall_s": 900.0, "scan_s": 2.0}
    assert found.durable_to == "rclone:store:bucket" and found.data == ("/here:there",)


def test_an_empty_file_has_defaults_and_a_name_from_its_directory(tmp_path: Path) -> None:
    folder = tmp_path / "My Project (2)"
    folder.mkdir()
    found = job(folder, "")
    assert found.name == "my-project-2" and found.stages == ()
    assert found.with_command(("python", "x y.py")).stages == (Stage("main", ("python", "x y.py")),)


def test_the_nearest_file_above_is_taken(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    job(tmp_path, '[job]\nname = "above"\nrun = "true"\n')
    found = load(tmp_path / "a/b")
    assert found is not None and found.name == "above" and found.project == tmp_path


@pytest.mark.parametrize(
    ("text", "line", "key", "suggestion"),
    [
        ('[job]\nname = "x"\nrum = "python"\n', 3, "job.rum", "run"),
        ("# hi\n\n[artefacts]\n", 3, "artefacts", "artifacts"),
        ('[resources]\ngpu = "A100"\ndisk = "lots"\n', 3, "resources.disk", ""),
        ("[retry]\nmax = true\n", 2, "retry.max", ""),
        ('[retry]\nmax = "3"\n', 2, "retry.max", ""),
        ('[budget]\nmax_cost = "20"\n', 2, "budget.max_cost", ""),
        ("[budget]\nmax_hours = inf\n", 2, "budget.max_hours", ""),
        ("[budget]\nmax_hours = -1\n", 2, "budget.max_hours", ""),
        ('[watch]\nstall = "soon"\n', 2, "watch.stall", ""),
        ('[job]\nname = "Big Name"\n', 2, "job.name", "big-name"),
        ('[artifacts]\nroster = ["/etc/passwd"]\n', 2, "artifacts.roster", ""),
        ('[artifacts]\ncheckpoints = "../up"\n', 2, "artifacts.checkpoints", ""),
        ("[artifacts]\nkeep = { latest = -2 }\n", 2, "artifacts.keep", ""),
        ("[artifacts]\nkeep = { latest = true }\n", 2, "artifacts.keep", ""),
        ("[artifacts]\nkeep = { newest = 2 }\n", 2, "artifacts.keep", ""),
        ('[durable]\nto = "somewhere"\n', 2, "durable.to", ""),
        ('[secrets]\nkeep = "disk"\n', 2, "secrets.keep", ""),
        ('[stage]\nrun = "x"\n', 1, "stage", ""),
        ('[[stage]]\nname = "x"\n', 1, "stage", ""),
        ('[job]\nrun = "x"\n[[stage]]\nrun = "y"\n', 2, "job.run", ""),
        ("[env]\nA = [1]\n", 2, "env.A", ""),
        ('"job" = 3\n', None, "job", ""),
    ],
)
def test_line_key_and_suggestion(tmp_path: Path, text: str, line: int | None, key: str, suggestion: str) -> None:
    error = bad(tmp_path, text)
    assert (error.line, error.key, error.suggestion) == (line, key, suggestion)
    assert key in error.sentence() and (line is None or f"{FILE}:{line}" in error.sentence())


def test_broken_toml_names_the_line(tmp_path: Path) -> None:
    assert bad(tmp_path, '[job]\nname = "x\n').line == 2
    (tmp_path / FILE).write_bytes(b"[job]\nname = '\xff'\n")
    with pytest.raises(errors.BadConfig, match="not UTF-8"):
        read(tmp_path / FILE)


@pytest.mark.parametrize("word", ['"sk-live-123456"', '"env:"', "7"])
def test_a_secret_that_is_written_down_is_refused_and_not_repeated(tmp_path: Path, word: str) -> None:
    error = bad(tmp_path, f"[secrets]\nAPI_KEY = {word}\n")
    assert error.key == "secrets.API_KEY" and error.line == 2
    assert "sk-live" not in error.sentence()


def test_a_notice_address_that_is_written_down_is_refused_and_not_repeated(tmp_path: Path) -> None:
    error = bad(tmp_path, '[notify]\nurls = ["https://hooks.example.com/T0K3N"]\n')
    assert error.key == "notify.urls" and "T0K3N" not in error.sentence()


@pytest.mark.parametrize(
    ("text", "value"), [("90", 90), ("90s", 90), (" 15 m ", 900), ("1.5h", 5400), ("2d", 172800), ("3min", 180)]
)
def test_times(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("500", 500), ("100GB", 10**11), ("64 MiB", 64 << 20), ("1.5kb", 1500), ("2TB", 2 * 10**12)]
)
def test_sizes(text: str, value: int) -> None:
    assert size_bytes(text) == value


@pytest.mark.parametrize("parse", [seconds, size_bytes, money])
@pytest.mark.parametrize("text", ["", "-1h", "1e9", "h", "1 parsec", "1,5h", "inf", "٣h", "20 usd", "9" * 400])
def test_what_is_no_amount(parse: Any, text: str) -> None:
    with pytest.raises(ValueError, match="write"):
        parse(text)


def test_money() -> None:
    assert money("20 USD") == (20.0, "USD") and money("0.5CNY") == (0.5, "CNY")


@given(st.text(max_size=60))
def test_any_text_becomes_a_name(text: str) -> None:
    from outlive.wire.names import JOB_NAME

    assert JOB_NAME.match(job_name(text))


VALUES = st.recursive(
    st.sampled_from(
        ["", "x", "a b", "../up", "/abs", "env:X", "env:", "1h", "20 USD", "5GB", "none", "{data}/x", "-1", "\0"]
    )
    | st.text(max_size=8)
    | st.integers()
    | st.floats()
    | st.booleans()
    | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["latest", "best", "every", "a"]), inner)
    ),
    max_leaves=4,
)
TABLES = st.sampled_from([*KEYS, "jobs", ""])
CONTENT = st.dictionaries(
    st.sampled_from(sorted({key for table in KEYS.values() for key in table} | {"keep", "A"})), VALUES, max_size=4
)


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(TABLES, CONTENT | st.lists(CONTENT, max_size=2) | VALUES, max_size=5))
def test_anything_is_a_job_or_a_bad_config(data: dict[str, Any]) -> None:
    try:
        found = jobs._Reader(Path("/nowhere/proj/outlive.toml"), "").job(data)
    except errors.BadConfig as error:
        assert error.sentence() and error.key is not None
    else:
        assert all(math.isfinite(v) for v in found.limits.values())
        assert found.max_s is None or (math.isfinite(found.max_s) and found.max_s >= 0)
        assert found.retry_max >= 0
