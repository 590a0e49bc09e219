"""`new --from`: the patch applies, names what it found, and leaves alone what it does not understand."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path
from typing import Any

import pytest

from outlive import errors
from outlive.scaffold.adapt import propose

PLAIN = """\
import torch

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
for step in range(100):
    loss = model(torch.randn(4, 2)).pow(2).mean()
    loss.backward()
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
print("done")
"""

EPOCHS = '''\
"""Trains."""
import torch
from torch.utils.data import DataLoader


def main():
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    train_loader = DataLoader(data, batch_size=4, shuffle=True)
    for epoch in range(10):
        for x, y in train_loader:
            loss = net(x, y)
            loss.backward()
            opt.step()
            opt.zero_grad()
        torch.save(net.state_dict(), "last.pt")


if __name__ == "__main__":
    main()
'''


def applied(tmp_path: Path, text: str) -> tuple[str, dict[str, Any]]:
    """Return the script after `patch` has taken the proposal, and the proposal."""
    path = tmp_path / "script.py"
    path.write_text(text)
    found = propose(path)
    assert path.read_text() == text, "a proposal edits nothing"
    done = subprocess.run(
        ["git", "apply", "-p1", "-"], input=found["patch"], text=True, cwd=tmp_path, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    after = path.read_text()
    ast.parse(after)
    return after, found


def test_a_plain_loop(tmp_path: Path) -> None:
    after, found = applied(tmp_path, PLAIN)
    lines = after.splitlines()
    assert "from outlive.checkpoints.torch import Checkpointer" in lines
    assert 'ckpt = Checkpointer("out/ckpt", model=model, optimizer=optimizer, scheduler=scheduler)' in lines
    assert "for step in range(start, 100):" in lines
    at = lines.index("    ckpt.maybe_save(step + 1)")
    assert lines[at - 1] == "    optimizer.zero_grad()" and lines[at + 1] == "ckpt.close()"
    assert lines.index("start = ckpt.resume()") < lines.index("for step in range(start, 100):")
    assert {"model": "model", "optimizer": "optimizer", "scheduler": "scheduler"}.items() <= found["found"].items()
    assert any("clipping" in note for note in found["notes"])


def test_epochs_over_a_loader_inside_a_function(tmp_path: Path) -> None:
    after, found = applied(tmp_path, EPOCHS)
    lines = after.splitlines()
    assert "    train_loader = ResumableLoader(train_loader)" in lines
    assert "    for epoch in range(train_loader.epoch, 10):" in lines
    at = lines.index("            ckpt.maybe_save(global_step)")
    assert lines[at - 1] == "            global_step += 1"
    assert lines.index('        torch.save(net.state_dict(), "last.pt")') < lines.index("    ckpt.close()")
    assert any("torch.save" in note for note in found["notes"])
    assert any("schedule" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("text", "said"),
    [("x = 1\n", "no training loop"), ("def f(:\n", "is not Python: line 1"), ("", "no training loop")],
)
def test_what_cannot_be_patched_is_said(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "s.py").write_text(text)
    with pytest.raises(errors.UsageError, match=said):
        propose(tmp_path / "s.py")


def test_missing_binary_and_done_already(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="cannot be read"):
        propose(tmp_path / "nothing.py")
    (tmp_path / "b.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(errors.UsageError, match="not text"):
        propose(tmp_path / "b.py")
    (tmp_path / "d.py").write_text("from outlive.checkpoints.torch import Checkpointer\n")
    assert propose(tmp_path / "d.py")["patch"] == ""
