"""Flags become values; nothing is opened."""

import pytest

from outlive import errors
from outlive.cli import main as cli
from outlive.cli import run as verb
from outlive.cli.tunnel import forward
from outlive.cli.up import price_of


def job_of(tmp_path, monkeypatch, *words, command=("python", "a b.py")):
    monkeypatch.chdir(tmp_path)
    args = cli.build_parser("run").parse_args(["run", *words])
    args.command = list(command)
    return verb.job_of(args)


def test_flags_win_over_the_file_and_the_rest_of_it_stays(tmp_path, monkeypatch):
    (tmp_path / "outlive.toml").write_text(
        '[job]\nname = "a"\nrun = "x"\n[env]\nA = "1"\nB = "2"\n[artifacts]\nroster = ["r.json"]\ncheckpoints = "c"\n'
        "keep = { latest = 5, best = 2 }\n[budget]\nmax_hours = 1\n"
    )
    job = job_of(
        tmp_path,
        monkeypatch,
        "--env",
        "B=3=4",
        "--secret",
        "TOKEN",
        "--secret",
        "IN=OUT",
        "--roster",
        "x/*.pt",
        "--keep-latest",
        "1",
        "--max-hours",
        "2.5",
        "--stall",
        "10m",
        "--durable",
        "/mnt/v",
        "--max-cost",
        "20USD",
    )
    assert job.name == "a" and job.stages[0].run == ("python", "a b.py")
    assert job.env == {"A": "1", "B": "3=4"} and job.secrets == {"TOKEN": "TOKEN", "IN": "OUT"}
    assert job.roster == ("r.json", "x/*.pt") and job.checkpoints == "c" and job.keep == {"latest": 1, "best": 2}
    assert (
        job.max_s == 9000
        and job.limits["stall_s"] == 600
        and job.durable_to == "/mnt/v"
        and job.max_cost == (20.0, "USD")
    )
    assert job.push is True


def test_a_job_can_be_made_of_a_command_alone(tmp_path, monkeypatch):
    project = tmp_path / "模型 训练"
    project.mkdir()
    job = job_of(project, monkeypatch, "--no-push", "--name", "tiny", "--then", "down")
    assert job.name == "tiny" and job.push is False and job.then == "down"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("6006", "127.0.0.1:6006:localhost:6006"),
        ("8080:6006", "127.0.0.1:8080:localhost:6006"),
        ("1:db:2", "127.0.0.1:1:db:2"),
    ],
)
def test_a_tunnel_listens_on_this_machine_only(typed, meant):
    assert forward(typed) == meant


@pytest.mark.parametrize("typed", ["0", "65536", "x", "1:", ":1", ""])
def test_what_is_no_port_is_refused(typed):
    with pytest.raises(errors.UsageError):
        forward(typed)


def test_prices_are_read_as_people_write_them():
    assert price_of("1.20USD") == (1.2, "USD") and price_of("3 CNY/h") == (3.0, "CNY") and price_of(None) is None


def test_a_pasted_ssh_line_keeps_its_flags_and_loses_ours(monkeypatch):
    parser = cli._below(cli.build_parser("up"))["up"]
    typed = ["autodl", "ssh", "-p", "2222", "-o", "A=b", "root@h", "--name", "gpu", "--price=1USD", "--json"]
    assert cli._ssh_line(typed, parser) == ["autodl", "ssh", "-p", "2222", "-o", "A=b", "root@h"]
