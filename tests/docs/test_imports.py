"""Travelling files import the standard library of Python 3.8 and each other, downwards; nothing else."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "outlive"

MAY_IMPORT = {
    "wire": {"wire"},
    "probes": {"probes", "wire"},
    "artifacts": {"artifacts", "wire"},
    "diagnose": {"diagnose", "artifacts", "probes", "wire"},
    "checkpoints": {"checkpoints", "artifacts", "probes", "wire"},
    "onbox": {"onbox", "checkpoints", "diagnose", "artifacts", "probes", "wire"},
}
ADAPTED = {
    "hf.py": {"transformers"},
    "lightning.py": {"lightning"},
}  # under checkpoints/torch/; never imported by others
NEWER_THAN_38 = {"tomllib", "zoneinfo", "graphlib"}
GONE_BY_313 = {
    "imp",
    "distutils",
    "asynchat",
    "asyncore",
    "smtpd",
    "pipes",
    "crypt",
    "cgi",
    "telnetlib",
    "nntplib",
    "spwd",
    "imghdr",
}


def imports(path: Path) -> list[tuple[int, str]]:
    """Return (line, absolute module) of every import, relative ones resolved."""
    package = ["outlive", *path.relative_to(SOURCE).parts[:-1]]
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *((node.module or "").split(".") if node.module else [])])
            if module == "outlive":
                found += [(node.lineno, f"outlive.{alias.name}") for alias in node.names]
            else:
                found.append((node.lineno, module))
    return found


def files() -> list[Path]:
    return sorted(path for name in MAY_IMPORT for path in (SOURCE / name).rglob("*.py"))


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_travelling_file_imports_only_what_a_box_has(path):
    package = path.relative_to(SOURCE).parts[0]
    adapter = path.relative_to(SOURCE).as_posix().startswith("checkpoints/torch/")
    bad = []
    for line, module in imports(path):
        words = module.split(".")
        if words[0] == "outlive":
            if len(words) > 1 and words[1] not in MAY_IMPORT[package] and words[1] != "__version__":
                bad.append((line, module))
        elif words[0] in NEWER_THAN_38 | GONE_BY_313 or words[0] not in sys.stdlib_module_names:
            known = {"torch", "numpy"} | ADAPTED.get(path.name, set()) if adapter else set()
            if words[0] not in known:
                bad.append((line, module))
    assert not bad


def test_importing_the_package_itself_brings_nothing():
    assert [
        name for _, name in imports(SOURCE / "__init__.py") if name.split(".")[0] not in sys.stdlib_module_names
    ] == []
