import json

from outlive.cli import init
from outlive.cli.main import main
from outlive.runs.job import read


def test_it_guesses_script_setup_and_checkpoints(tmp_path, monkeypatch, capsys):
    project = tmp_path / "My Project 模型"
    project.mkdir()
    (project / "train.py").write_text('save("out/ckpt/step.pt"); CKPT = "out/ckpt"\n')
    (project / "requirements.txt").write_text("numpy\n")
    monkeypatch.chdir(project)
    assert main(["init", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["schema"] == "outlive/init/1" and said["guessed"]["checkpoints"] == "out/ckpt"
    job = read(project / "outlive.toml")
    assert (
        job.stages[0].run == "python train.py"
        and job.checkpoints == "out/ckpt"
        and job.setup_inputs == ("requirements.txt",)
    )


def test_it_never_overwrites(tmp_path, capsys):
    (tmp_path / "outlive.toml").write_text("# mine\n")
    assert main(["init", str(tmp_path)]) == 2
    assert (tmp_path / "outlive.toml").read_text() == "# mine\n"
    assert "It was not changed." in capsys.readouterr().err


def test_the_file_is_valid_where_nothing_was_found(tmp_path):
    path = tmp_path / "outlive.toml"
    path.write_text(init.text_of(init.guesses(tmp_path)))
    assert read(path).checkpoints == ""
