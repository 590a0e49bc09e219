"""``outlive diagnose``: files, standard input, bad input; one JSON object."""

import gzip
import io
import json
import types

import pytest

from outlive import errors
from outlive.cli import diagnose
from outlive.runs.diagnose import of_paths

OOM = b"step 1 loss 2.1\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


def asked(capsys, *words, as_json=True):
    assert diagnose.run(types.SimpleNamespace(logs=list(words), json=as_json)) == 0
    out = capsys.readouterr().out
    return json.loads(out) if as_json else out


def test_a_file(tmp_path, capsys):
    path = tmp_path / "a.log"
    path.write_bytes(OOM)
    data = asked(capsys, str(path))
    assert (data["schema"], data["verdict"]) == ("outlive/diagnose/1", "found")
    first = data["findings"][0]
    assert {"class", "severity", "confidence", "evidence", "cause", "fix", "remedy", "rule", "source_ids"} <= set(first)
    assert first["class"] == "cuda_oom" and first["evidence"][0]["line"] == 2
    text = asked(capsys, str(path), as_json=False)
    assert "GPU memory exhausted" in text and "remedy: fix_and_relaunch" in text


def test_standard_input(capsys, monkeypatch):
    for data in (OOM, gzip.compress(OOM)):
        monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=io.BytesIO(data)))
        assert asked(capsys, "-")["findings"][0]["class"] == "cuda_oom"


def test_gzip_also_cut_short(tmp_path, capsys):
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress(OOM))
    assert asked(capsys, str(path))["findings"][0]["class"] == "cuda_oom"
    path.write_bytes(gzip.compress(OOM)[:-6])
    assert asked(capsys, str(path))["lines"] >= 1


def test_logs_of_several_ranks_are_one_incident(tmp_path):
    (tmp_path / "rank0.log").write_bytes(b"ncclRemoteError: A call failed possibly due to a network error\n")
    (tmp_path / "rank1.log").write_bytes(OOM)
    data = of_paths([str(tmp_path / "rank0.log"), str(tmp_path / "rank1.log")])
    assert data["findings"][0]["class"] == "cuda_oom"
    assert data["findings"][0]["evidence"][0]["source"].endswith("rank1.log")


def test_nothing_wrong_and_not_known(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("step 1 loss 2.0\nstep 2 loss 1.9\ntraining finished\n")
    assert of_paths([str(path)])["verdict"] == "nothing_wrong"
    path.write_text("hello\n")
    data = of_paths([str(path)])
    assert data["verdict"] == "not_known" and data["would_tell"]
    path.write_text("")
    assert of_paths([str(path)])["verdict"] == "not_known"


def test_bad_input_is_said(tmp_path):
    (tmp_path / "b.log").write_bytes(bytes(range(256)) * 100)
    for word in (str(tmp_path / "none.log"), str(tmp_path), str(tmp_path / "b.log")):
        with pytest.raises(errors.UsageError) as caught:
            of_paths([word])
        assert caught.value.safe
