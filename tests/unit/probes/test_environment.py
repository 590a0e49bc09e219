"""The login environment, asked of real shells with prepared start-up files."""

import os
import shutil
import time

import pytest

from outlive.probes import environment
from outlive.probes.environment import login_environment, login_reading, merge


@pytest.fixture
def account(tmp_path, monkeypatch):
    """A user of ours: (home, set start-up file)."""
    monkeypatch.setattr(environment, "_account", lambda: (str(tmp_path), "tester", shutil.which("bash")))
    monkeypatch.setattr(environment, "_first_process", lambda: {})

    def profile(content):
        (tmp_path / ".bash_profile").write_text(content)

    return profile


def test_variables_of_start_up_files_past_their_noise(account):
    account("echo Welcome; echo; printf 'A=not me\\0'\nexport MULTI=$'two\\nlines' MY_FLAG='a=b'\n")
    kept, dropped = login_environment(10)
    assert kept["MULTI"] == "two\nlines" and kept["MY_FLAG"] == "a=b" and "A" not in kept
    assert kept["USER"] == "tester" and dropped == []


def test_nothing_of_the_caller_gets_in(account, monkeypatch):
    monkeypatch.setenv("CLIENT_SETTING", "leaked")
    account("")
    assert "CLIENT_SETTING" not in login_environment(10)[0]


def test_secrets_are_dropped_by_name(account):
    account("export HF_TOKEN=hf_abc WANDB_API_KEY=0123 HF_HOME=/data/hf\n")
    reading = login_reading(10)
    assert reading.dropped == ["HF_TOKEN", "WANDB_API_KEY"]
    assert reading.kept["HF_HOME"] == "/data/hf"
    assert "hf_abc" not in repr(reading) and "0123" not in repr(reading)


@pytest.mark.parametrize(
    "content, word", [("read answer </dev/zero; sleep 60\n", "no answer"), ("exec false\n", "ended"), ("exit 4\n", "4")]
)
def test_a_start_up_file_that_hangs_or_leaves_is_a_reason(account, content, word):
    account(content)
    begin_s = time.monotonic()
    reading = login_reading(0.5)
    assert time.monotonic() - begin_s < 3
    assert word in reading.why_unknown
    assert reading.kept["PATH"], "what is known without the shell is still there"


def test_a_shell_that_is_not_there(account, monkeypatch):
    monkeypatch.setattr(environment, "_account", lambda: ("/nope", "", "/nope/sh"))
    assert "/nope/sh" in login_reading(5).why_unknown


def test_a_posix_shell_will_do(account, tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "_account", lambda: (str(tmp_path), "tester", "/bin/sh"))
    (tmp_path / ".profile").write_text("export FROM_PROFILE=1\n")
    assert login_environment(10)[0]["FROM_PROFILE"] == "1"


def test_the_container_s_variables_come_back_under_the_login_s():
    first = {
        "PATH": "/opt/conda/bin:/usr/local/nvidia/bin:/usr/bin",
        "CUDA_HOME": "/usr/local/cuda",
        "LANG": "C",
        "HOME": "/",
        "HOSTNAME": "abc",
        "SSH_CLIENT": "x",
    }
    login = {"PATH": "/home/me/bin:/usr/local/bin:/usr/bin:.", "LANG": "C.UTF-8", "PWD": "/root", "LC_ALL": "de_DE"}
    merged = merge(login, first)
    assert merged["PATH"] == "/home/me/bin:/opt/conda/bin:/usr/local/nvidia/bin:/usr/local/bin:/usr/bin"
    assert merged["CUDA_HOME"] == "/usr/local/cuda" and merged["LANG"] == "C.UTF-8"
    assert set(merged) == {"PATH", "CUDA_HOME", "LANG"}
    assert merge({}, {})["PATH"]


def test_this_machine_s_own_login(monkeypatch):
    reading = login_reading(10)
    assert reading.shell and os.path.isabs(reading.shell)
    assert reading.kept["PATH"]
    assert not set(reading.kept) & set(reading.dropped)
