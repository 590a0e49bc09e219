"""The packed program: small, the same each time, and its lines are those of the sources."""

import io
import re
import subprocess
import sys
import zipfile
from importlib import resources

from outlive.onbox import boot
from outlive.transport import pack

LIMIT_BYTES = 200_000
"""It goes over every slow line and into every small disk once. A fifth of it are the patterns of `diagnose`."""


def test_it_stays_small():
    assert len(pack.supervisor_pyz()[1]) < LIMIT_BYTES


def test_packing_twice_gives_the_same_bytes():
    first = pack.supervisor_pyz()
    pack.supervisor_pyz.cache_clear()
    assert pack.supervisor_pyz() == first


def _written(tmp_path):
    program = tmp_path / "supervisor.pyz"
    program.write_bytes(pack.supervisor_pyz()[1])
    return program


def _inside(tmp_path, code):
    """Run code inside the packed program, as one of its modules would."""
    with zipfile.ZipFile(_written(tmp_path)) as archive:
        main = archive.read("__main__.py").decode()
        rest = {n: archive.read(n) for n in archive.namelist() if n != "__main__.py"}
    head, entry, _ = main.partition(" from outlive.onbox.__main__ import entry")
    assert entry
    program = tmp_path / "changed.pyz"
    with zipfile.ZipFile(program, "w") as archive:
        archive.writestr("__main__.py", head + "".join(" " + line + "\n" for line in code.splitlines()))
        for name, data in rest.items():
            archive.writestr(name, data)
    words = [sys.executable, "-I", "-S", str(program)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120)


def test_it_starts_and_says_how_to_use_it(tmp_path):
    words = [sys.executable, "-I", "-S", str(_written(tmp_path))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "usage:" in done.stderr


def test_every_module_is_imported_from_it_and_nothing_from_elsewhere(tmp_path):
    with zipfile.ZipFile(_written(tmp_path)) as archive:
        head = next(boot.unpacked(archive.read(boot.BLOCK))).decode().split()[::2]
    names = [boot.module_of(path) for path in head]
    # backwards: what the block is not ordered for
    code = f"import importlib\nfor name in {names[::-1]!r}: print(importlib.import_module(name).__file__)"
    done = _inside(tmp_path, code)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == sorted(f"{tmp_path}/changed.pyz/{path}" for path in head)


def test_a_traceback_names_the_lines_of_the_sources(tmp_path):
    done = _inside(
        tmp_path,
        "import traceback\nfrom outlive.wire import names\n"
        "try: names.RunFiles(1)\nexcept Exception: traceback.print_exc()",
    )
    assert done.returncode == 0, done.stderr
    source = (resources.files("outlive") / "wire/names.py").read_text("utf-8").splitlines()
    place = re.search(r'outlive/wire/names\.py", line (\d+), in .*\n +(.*)', done.stderr)
    assert place, done.stderr
    assert place[2] in source[int(place[1]) - 1]


def test_data_is_found_as_it_was_before(tmp_path):
    done = _inside(
        tmp_path,
        "import pkgutil\n"
        "for package, name in (('outlive.diagnose', 'patterns.json'), ('outlive.onbox', 'keeper.sh')):\n"
        "    print(len(pkgutil.get_data(package, name)))",
    )
    top = resources.files("outlive")
    wanted = [len((top / path).read_bytes()) for path in ("diagnose/patterns.json", "onbox/keeper.sh")]
    assert [int(word) for word in done.stdout.split()] == wanted, done.stderr


def test_it_holds_no_client_code():
    archive = zipfile.ZipFile(io.BytesIO(pack.supervisor_pyz()[1]))
    names = archive.namelist() + next(boot.unpacked(archive.read(boot.BLOCK))).decode().split()[::2]
    assert {n.split("/")[1] for n in names if n.count("/") > 1} == set(pack.PACKAGES)


def test_what_a_call_imports_lies_in_front():
    archive = zipfile.ZipFile(io.BytesIO(pack.supervisor_pyz()[1]))
    order = next(boot.unpacked(archive.read(boot.BLOCK))).decode().split()[::2]
    assert order[:3] == ["outlive/__init__.py", "outlive/onbox/__init__.py", "outlive/onbox/__main__.py"]
    assert order.index("outlive/onbox/calls.py") < order.index("outlive/onbox/supervisor.py")
    assert order.index("outlive/onbox/supervisor.py") < order.index("outlive/artifacts/pickle_allow.py")
