"""``plan --measure``: how it reads, and the correction that is kept for a GPU."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlive.errors import BadConfig
from outlive.views.amounts import size

if TYPE_CHECKING:
    from outlive.plan.measure import Measured

FILE = "plan-corrections.json"


def data(found: Measured, kept: str) -> dict[str, Any]:
    """Return the object of ``--json``."""
    return {
        "schema": "outlive/plan-measured/1",
        **found._asdict(),
        "activation_scale": found.activation_scale,
        "speed_scale": found.speed_scale,
        "kept": kept or None,
    }


def lines(found: Measured, kept: str) -> list[str]:
    """Return the lines of the terminal."""
    rows = [
        f"{found.layers} blocks, {found.micro_batch} x {found.seq_len} tokens on {found.device}",
        f"  {'':<22}{'predicted':>12}{'measured':>12}",
        _row("model states", found.states_predicted, found.states_measured),
        _row("kept for backward", found.activations_predicted, found.activations_measured),
    ]
    if found.peak_predicted is not None:
        rows.append(_row("peak allocated", found.peak_predicted, found.peak_measured))
    if found.tokens_per_second_predicted is not None:
        rows.append(f"  {'tokens/s':<22}{found.tokens_per_second_predicted:>12.0f}{found.tokens_per_second:>12.0f}")
    else:
        rows.append(f"  {'tokens/s':<22}{'-':>12}{found.tokens_per_second:>12.0f}  (no prediction for this device)")
    if kept:
        rows.append(f"kept in {kept}; `outlive plan --corrected` applies it")
    return rows


def keep(found: Measured, gpu: str, directory: Path) -> Path:
    """Keep the correction for a GPU, beside those of others; return the file."""
    path = directory / FILE
    every = _read(path)
    every[gpu] = {
        "activation_scale": found.activation_scale,
        "speed_scale": found.speed_scale,
        "device": found.device,
    }
    directory.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(FILE + ".new")
    aside.write_text(json.dumps(every, indent=1) + "\n", "utf-8")
    os.replace(aside, path)
    return path


def kept(gpu: str, directory: Path) -> tuple[float, float | None] | None:
    """Return activation and speed scale kept for a GPU, None where there are none. Raises BadConfig."""
    path = directory / FILE
    row = _read(path).get(gpu)
    if row is None:
        return None
    try:
        activation, speed = float(row["activation_scale"]), row["speed_scale"]
        if not 0.2 < activation < 5 or (speed is not None and not 0.02 < float(speed) < 50):
            raise ValueError("out of range")
    except (KeyError, TypeError, ValueError) as error:
        raise BadConfig(f"no correction that can be meant: {error}", file=str(path), key=gpu) from error
    return activation, None if speed is None else float(speed)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BadConfig(f"cannot be read: {error}", file=str(path), next=[["rm", str(path)]]) from error
    return found if isinstance(found, dict) else {}


def _row(name: str, predicted: float | None, measured: float | None) -> str:
    return f"  {name:<22}{size(predicted):>12}{size(measured):>12}"
