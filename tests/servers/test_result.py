"""The result of a run on real sshd boxes: brought home whole, digest by digest, whatever the box lacks."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from servers import ran
from servers.clients import Client

from outlive import errors
from outlive.runs.pull import pull


@pytest.mark.parametrize(
    "options", [{}, {"no_sftp": True, "no_rsync": True, "noisy": True, "user": "ana"}], ids=["plain", "no-tools"]
)
def test_a_result_is_whole_here_and_not_sent_twice(
    box_factory: Any, client: Client, tmp_path: Path, options: dict[str, Any]
) -> None:
    box = box_factory(**options)
    place = client.up(box).place
    run = ran.start(place, ran.TRAIN + "open('out/权重 1.bin','wb').write(os.urandom(3000000))", artifacts={})
    ran.ended(place, run)
    result = pull(place.home, run, to=tmp_path / "结果")
    assert (result.delivery, result.exit_code) == ("proved", 0)
    work = Path(str(box.root) + place.box.root) / ".outlive" / "runs" / run / "work"
    for entry in result.entries:
        there, here = (work / entry["path"]).read_bytes(), (result.dir / entry["path"]).read_bytes()
        assert there == here and hashlib.sha256(here).hexdigest() == entry["sha256"]
    assert "out/权重 1.bin" in {e["path"] for e in result.entries}
    assert json.loads(result.receipt_path.read_bytes())["same_machine"] is False
    assert pull(place.home, run, to=tmp_path / "结果").bytes_fetched == 0
    box.kill()
    with pytest.raises(errors.PlaceError) as caught:
        pull(place.home, run, to=tmp_path / "结果")
    assert caught.value.exit_code == 4 and any(str(result.dir) in line for line in caught.value.why)
    place.close()


@pytest.mark.box_python("3.8")
def test_changed_code_comes_along_from_an_old_python(box_factory: Any, client: Client, tmp_path: Path) -> None:
    box = box_factory(python="3.8")
    client.up(box)
    (client.project / "model.py").write_text("LAYERS = 2\n")
    started = client.run(client.job(env={"LAST": "5", "STEP_S": "0.01"}))
    place = client.place()
    ran.ended(place, started.run)
    work = Path(str(box.root) + place.box.root) / ".outlive" / "runs" / started.run / "work"
    (work / "model.py").write_text("LAYERS = 4\n")
    result = pull(place.home, started.run, to=tmp_path / "home")
    assert result.delivery == "proved"
    assert (result.dir / ".outlive" / "drift" / "model.py").read_text() == "LAYERS = 4\n"
    assert json.loads((result.dir / "result.json").read_bytes()) == {"step": 5}
    place.close()
