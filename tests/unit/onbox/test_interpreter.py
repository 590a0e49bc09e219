"""Which interpreter the work gets under the names `python` and `python3`."""


def test_a_string_command_finds_the_interpreter_under_both_names(box):
    line = "python -c 'import sys; print(sys.version_info[:2])' && python3 -c 'print(2)' && echo x > x.txt"
    run = box.start(line)
    assert run.ended()["state"] == "succeeded", run.log()
    folders = [line for line in run.log().splitlines()]
    assert len(folders) == 2, run.log()
