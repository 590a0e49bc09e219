"""Run import-linter's contracts of pyproject.toml, leaving out packages that are not written yet.

A contract names every package of the design; import-linter stops at a name that does not exist. Only names of packages
that are absent from src/ are left out, and they are listed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def exists(module: str) -> bool:
    """Return whether a module of ours has a file; a foreign one always counts as there."""
    if not module.startswith("outlive."):
        return True
    path = ROOT.joinpath("src", *module.split("."))
    return (path / "__init__.py").exists() or path.with_suffix(".py").exists()


def toml(table: dict[str, Any]) -> str:
    """Return a flat table as TOML; JSON's strings, numbers, booleans and arrays are TOML's too."""
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())


def main() -> int:
    """Write the reduced contracts aside, run the linter on them, return its status."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    contracts = settings.pop("contracts")
    absent: set[str] = set()
    text = "[tool.importlinter]\n" + toml(settings)
    for contract in contracts:
        dropped = False
        for key in ("source_modules", "forbidden_modules", "protected_modules"):
            if key in contract:
                kept = [name for name in contract[key] if exists(name)]
                absent.update(set(contract[key]) - set(kept))
                dropped = dropped or not kept
                contract[key] = kept
        if not dropped:
            text += "\n[[tool.importlinter.contracts]]\n" + toml(contract)
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "imports.toml"
        config.write_text(text, "utf-8")
        tool = [str(Path(sys.executable).parent / "lint-imports"), "--config", str(config), "--no-cache"]
        path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = subprocess.run(tool, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    output = done.stdout + done.stderr
    print(output[output.find("Analyzed ") :] if "Analyzed " in output else output)
    if absent:
        print("not written yet:", ", ".join(sorted(absent)))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
