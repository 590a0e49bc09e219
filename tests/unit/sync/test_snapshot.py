"""What belongs to a snapshot, with git itself as the judge of git's rules, and what a person hears about it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from outlive import errors
from outlive.onbox.code import manifest_digest
from outlive.sync.cautions import LinesNormalised, SecretsFound, looks_secret_file, too_big
from outlive.sync.snapshot import Rules, collect, open_content, preview


def tree(top: Path, files: dict[str, str | bytes]) -> Path:
    for path, content in files.items():
        full = top / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_bytes(content if isinstance(content, bytes) else content.encode())
    return top


def paths(top: Path, rules: Rules | None = None) -> set[str]:
    return {f["path"] for f in collect(top, rules).files}


GIT_CASES = {
    "nested and negated": {
        ".gitignore": "*.log\n/build\n!keep.log\ndata/*\n!data/keep.txt\n",
        "a.log": "",
        "keep.log": "",
        "build/x": "",
        "sub/build/x": "",
        "data/no": "",
        "data/keep.txt": "",
        "sub/.gitignore": "!b.log\n*.txt\n",
        "sub/b.log": "",
        "sub/c.txt": "",
    },
    "white list": {".gitignore": "*\n!*/\n!*.py\n!.gitignore\n", "a.py": "", "b.txt": "", "d/c.py": "", "d/e.txt": ""},
    "excluded parents cannot be re-entered": {".gitignore": "out/\n!out/x\n", "out/x": "", "out/y": ""},
    "contents, not the directory": {
        ".gitignore": "abc/**\n!abc/keep\n**/tmp/z\na/**/b\n",
        "abc/keep": "",
        "abc/no": "",
        "q/tmp/z": "",
        "a/b": "",
        "a/1/2/b": "",
        "a/1/c": "",
    },
    "odd characters": {
        ".gitignore": "\\#hash\n\\!bang\ntrail\\ \n# comment\n[ab].c\n?.h\n\n中文\n",
        "#hash": "",
        "!bang": "",
        "trail ": "",
        "a.c": "",
        "c.c": "",
        "x.h": "",
        "xx.h": "",
        "中文": "",
        "-rf": "",
    },
    "directory only": {".gitignore": "foo/\nbar\n", "foo": "", "d/foo/x": "", "bar/x": "", "d/bar": ""},
    "windows ends": {".gitignore": "*.log\r\nout/\r\n", "a.log": "", "out/x": "", "b": ""},
}


@pytest.mark.parametrize("case", GIT_CASES)
def test_same_files_as_git(tmp_path: Path, case: str) -> None:
    files = dict(GIT_CASES[case])
    tree(tmp_path, files)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    if case == "windows ends":
        # git takes the carriage return as part of the pattern; a person who edits on Windows does not mean it
        (tmp_path / ".gitignore").write_text(files[".gitignore"].replace("\r", ""))
    listed = subprocess.run(
        ["git", "-C", str(tmp_path), "ls-files", "-z", "--others", "--exclude-standard"],
        capture_output=True,
        check=True,
    )
    (tmp_path / ".gitignore").write_text(files[".gitignore"], newline="")
    assert paths(tmp_path) == {os.fsdecode(p) for p in listed.stdout.split(b"\0") if p}


def test_rules_of_the_repository_above_apply(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    tree(tmp_path, {".gitignore": "*.bin\n/proj/secret\n", "proj/a.bin": "", "proj/secret": "", "proj/b.py": ""})
    (tmp_path / ".git/info/exclude").write_text("*.tmp\n")
    tree(tmp_path, {"proj/x.tmp": ""})
    assert paths(tmp_path / "proj") == {"b.py"}


def test_our_file_is_stronger_and_can_take_back_in(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            ".gitignore": "data/\nout/\n*.csv\n",
            ".outliveignore": "!data/small.csv\n!out/\n*.md\n!venv/keep.txt\n",
            "data/small.csv": "1",
            "data/deep/large.bin": "2",
            "out/a": "3",
            "out/b.csv": "4",
            "README.md": "5",
            "train.py": "6",
            "venv/keep.txt": "7",
            "venv/lib/x.py": "8",
        },
    )
    assert paths(tmp_path) == {".gitignore", ".outliveignore", "data/small.csv", "out/a", "train.py", "venv/keep.txt"}


def test_what_nobody_means_stays_out(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            "train.py": "",
            "__pycache__/a.pyc": "",
            ".git/HEAD": "",
            "outlive-runs/r/x": "",
            "sub/outlive-runs/x": "",
            "env9/pyvenv.cfg": "",
            "env9/bin/python": "",
            "node_modules/x": "",
            "a.pyc": "",
        },
    )
    assert paths(tmp_path) == {"train.py", "sub/outlive-runs/x"}


def test_names_of_every_kind_and_one_digest(tmp_path: Path) -> None:
    names = [b"new\nline", b"quote'\"", b"\xff\xfe.py", "中文.py".encode(), b"-rf", b" lead", b"back\\slash", b"*"]
    for name in names:
        (Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name)))).write_text("x")
    one = collect(tmp_path)
    assert {os.fsencode(f["path"]) for f in one.files} == set(names)
    assert one.digest == manifest_digest(list(one.files)) == collect(tmp_path).digest
    assert one.total_bytes == len(names)
    assert collect(tmp_path).files == one.files


def test_digest_ignores_umask_and_time_but_not_the_executable_bit(tmp_path: Path) -> None:
    tree(tmp_path, {"a.sh": "#!/bin/sh\n"})
    (tmp_path / "a.sh").chmod(0o644)
    plain = collect(tmp_path).digest
    (tmp_path / "a.sh").chmod(0o600)
    os.utime(tmp_path / "a.sh", (1, 1))
    assert collect(tmp_path).digest == plain
    (tmp_path / "a.sh").chmod(0o700)
    assert collect(tmp_path).digest != plain


def test_links_stay_inside_or_are_refused_by_name(tmp_path: Path) -> None:
    project = tmp_path / "p"
    tree(project, {"real/x": "1"})
    (project / "rel").symlink_to("real/x")
    (project / "abs").symlink_to(project / "real")
    (project / "dangling").symlink_to("nothing-yet")
    (project / "around").symlink_to("../p/real/x")
    links = {f["path"]: f["link"] for f in collect(project).files if f["link"]}
    assert links == {"rel": "real/x", "abs": "real", "dangling": "nothing-yet", "around": "real/x"}
    (project / "evil").symlink_to("/etc/passwd")
    with pytest.raises(errors.UsageError, match="evil -> /etc/passwd"):
        collect(project)
    (project / ".outliveignore").write_text("evil\n")
    assert "evil" not in paths(project)


def test_windows_scripts_are_normalised_reported_or_refused(tmp_path: Path) -> None:
    script, text = b"#!/bin/bash\r\necho hi\r\n", b"a,b\r\n1,2\r\n"
    tree(tmp_path, {"run": script, "go.sh": b"echo\r\n", "data.csv": text})
    snapshot = collect(tmp_path)
    assert snapshot.normalised == {"run", "go.sh"}
    assert [w.paths for w in snapshot.warnings if isinstance(w, LinesNormalised)] == [("go.sh", "run")]
    with open_content(str(tmp_path), snapshot, "run") as handle:
        assert handle.read() == b"#!/bin/bash\necho hi\n"
    assert (tmp_path / "run").read_bytes() == script
    with pytest.raises(errors.UsageError, match="Windows") as refused:
        collect(tmp_path, Rules(crlf="refuse"))
    assert refused.value.why == ["go.sh", "run"]
    assert collect(tmp_path, Rules(crlf="keep")).total_bytes == len(script) + len(text) + 6


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        (".env", b"A=1", True),
        (".env.production", b"A=1", True),
        (".env.example", b"A=1", False),
        ("id_rsa", b"x", True),
        ("id_rsa.pub", b"ssh-rsa AAAA", False),
        ("ca.pem", b"-----BEGIN CERTIFICATE-----\nMII\n", False),
        ("key.pem", b"-----BEGIN RSA PRIVATE KEY-----\nMII\n", True),
        ("config.py", b"HF = 'hf_" + b"aB3" * 10 + b"'\n", True),
        ("config.py", b"api_key = 'sV9" + b"q7" * 10 + b"'\n", True),
        ("config.py", b"api_key = 'your-key-here-123456'\n", False),
        ("train.py", b"items.sort(key=lambda k: k.token)\nmax_tokens = 512\n", False),
        ("token", b"hf_" + b"aB3" * 10 + b"\n", True),
        ("lock.json", b'{"sha256": "' + b"0a" * 32 + b'"}', False),
        ("weights.bin", b"\0" * 100, False),
    ],
)
def test_secrets(name: str, content: bytes, found: bool) -> None:
    assert bool(looks_secret_file(name, content)) == found


def test_secrets_are_a_warning_that_does_not_repeat_them(tmp_path: Path) -> None:
    token = "hf_" + "aB3" * 10
    tree(tmp_path, {"a.py": f"T = '{token}'\n", ".env": "X=1"})
    warnings = preview(collect(tmp_path))["warnings"]
    assert [w["kind"] for w in warnings] == ["secrets"]
    assert {path for path, _ in warnings[0]["files"]} == {"a.py", ".env"}
    assert token not in str(warnings)
    assert isinstance(collect(tmp_path).warnings[0], SecretsFound)


def test_absurd_sizes_name_the_biggest_and_the_way_for_data() -> None:
    assert too_big([("a", 10)]) is None
    one = too_big([("small", 1), ("big.bin", 201 * 10**6)])
    assert one is not None and one.biggest[0] == ("big.bin", 201 * 10**6) and "push --data" in one.sentence()
    assert too_big([(str(n), 1) for n in range(20_001)]) is not None
    assert too_big([(str(n), 10**8) for n in range(6)]) is not None


def test_preview_numbers(tmp_path: Path) -> None:
    tree(tmp_path, {f"f{n}": "x" * n for n in range(1, 8)})
    shown = preview(collect(tmp_path), bytes_to_send=14, rate_bytes_s=7.0)
    assert (shown["files"], shown["bytes"], shown["eta_s"]) == (7, 28, 2.0)
    assert [b["path"] for b in shown["biggest"]] == ["f7", "f6", "f5", "f4", "f3"]
    assert preview(collect(tmp_path))["eta_s"] is None


def test_nothing_to_push_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="nothing to push"):
        collect(tmp_path)
    with pytest.raises(errors.UsageError, match="no directory"):
        collect(tmp_path / "gone")


def test_a_pipe_is_left_out_and_said(tmp_path: Path) -> None:
    tree(tmp_path, {"a": "1"})
    os.mkfifo(tmp_path / "pipe")
    snapshot = collect(tmp_path)
    assert [f["path"] for f in snapshot.files] == ["a"]
    assert "pipe" in snapshot.warnings[0].sentence()
