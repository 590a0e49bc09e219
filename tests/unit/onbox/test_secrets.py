"""Secrets: through pipes into the work's environment, and nowhere else that we write."""

import os
import signal
import stat
import uuid

CANARY = "canary-7f" + uuid.uuid4().hex  # tests beside this one have their own
NAMES = {"secrets": {"names": ["TOKEN"]}}
PAYLOAD = {"secrets": {"TOKEN": CANARY}}


def files_with(root, canary):
    found = []
    for folder, _dirs, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            if stat.S_ISREG(os.lstat(path).st_mode):
                with open(path, "rb") as handle:
                    if canary.encode() in handle.read():
                        found.append(path)
    return found


def processes_with(part, canary):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open("/proc/%s/%s" % (name, part), "rb") as handle:
                    if canary.encode() in handle.read():
                        found.append(int(name))
            except OSError:
                continue
    return found


def kill_all(run):
    for pid in [run.supervisor_pid()] + run.keepers() + [run.work_pid()]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def code(pause_s):
    # the canary itself must not be in the command line
    text = """
import os, time
print("ready", flush=True)
assert os.environ["TOKEN"].startswith("canary-7f")
time.sleep(%s)
open("x.txt", "w").write("x")
"""
    return text % pause_s


def test_a_secret_is_in_no_argument_no_file_and_no_environment_but_the_works(box):
    run = box.python(code(10), payload=PAYLOAD, **NAMES)
    run.until_journal("first_line")
    work = run.work_pid()
    assert processes_with("cmdline", CANARY) == []
    assert processes_with("environ", CANARY) == [work]
    assert files_with(box.root, CANARY) == []
    os.kill(run.supervisor_pid(), signal.SIGKILL)
    run.until(lambda s: s["supervised"] and len(run.journal("supervisor")) == 2)
    assert processes_with("environ", CANARY) == [work]
    assert run.ended()["state"] == "succeeded"
    assert files_with(box.root, CANARY) == []


def test_the_keeper_gives_the_secrets_back_to_a_new_supervisor(box):
    run = box.python(code("0 if os.path.exists('x') else 60"), payload=PAYLOAD, **NAMES)
    run.until_journal("first_line")
    os.kill(run.supervisor_pid(), signal.SIGKILL)
    run.until(lambda s: s["supervised"] and len(run.journal("supervisor")) == 2)
    with open(run.path("x"), "w") as handle:
        handle.write("x")
    os.kill(run.work_pid(), signal.SIGKILL)
    assert run.ended()["state"] == "succeeded", "the second attempt had the secrets"
    assert len(run.journal("attempt")) == 2


def test_lost_secrets_are_waited_for_and_brought_again(box):
    run = box.python(code("2 if os.path.exists('x.txt') else 30"), payload=PAYLOAD, **NAMES)
    run.until_journal("first_line")
    with open(run.path("x.txt"), "w"):
        pass
    kill_all(run)
    run.until(lambda s: not s["supervised"])
    run.wake()
    # nobody saw that end: whether it is resumed is the outcome's business, so the run is asked to go on
    run.until(lambda s: s["state"] == "waiting" or s["ended"])
    if run.status()["ended"]:
        run.ask("retry")
    status = run.until(lambda s: s["state"] == "waiting")
    assert "TOKEN" in status["why"]
    supervisor = run.supervisor_pid()
    run.wake()
    assert run.supervisor_pid() == supervisor and run.status()["state"] == "waiting"
    run.wake(secrets={"TOKEN": CANARY})
    assert run.ended()["state"] == "succeeded"
    assert run.supervisor_pid() == supervisor, "it was told, not replaced"
    assert files_with(box.root, CANARY) == []


def test_a_part_of_the_secrets_adds_to_what_is_held(box):
    run = box.start("test $A$B = 12 && echo ok > x.txt", payload={"secrets": {"A": "1"}}, secrets={"names": ["A", "B"]})
    assert run.first["state"] == "waiting" and run.first["why"].startswith("secrets are gone from memory: B;")
    run.wake(secrets={"B": "2"})
    assert run.ended()["state"] == "succeeded"


def test_secrets_brought_to_a_running_run_are_there_for_its_next_attempt(box):
    """Keeper and supervisor died, the work lived on: the client that wakes the run has the secrets with it."""
    run = box.python(code("0 if os.path.exists('x.txt') else 60"), payload=PAYLOAD, **NAMES)
    run.until_journal("first_line")
    for pid in [run.supervisor_pid()] + run.keepers():
        os.kill(pid, signal.SIGKILL)
    run.until(lambda s: not s["supervised"])
    run.wake()
    run.until(lambda s: s["supervised"])
    run.wake(secrets={"TOKEN": CANARY})
    with open(run.path("x.txt"), "w"):
        pass
    os.kill(run.work_pid(), signal.SIGKILL)
    run.until(lambda s: s["ended"] or s["state"] == "waiting" or s["attempt"] == 2)
    if run.status()["ended"] and run.status()["state"] != "succeeded":
        run.ask("retry")
    run.until(lambda s: s["state"] == "succeeded")


def test_secrets_kept_on_the_box_are_private_and_removed_at_the_end(box):
    run = box.python(code(3), payload=PAYLOAD, secrets={"names": ["TOKEN"], "keep": "box"})
    run.until_journal("first_line")
    assert stat.S_IMODE(os.stat(run.files.secrets).st_mode) == 0o600
    assert files_with(box.root, CANARY) == [run.files.secrets]
    run.ended()
    run.until(lambda s: not s["supervised"])
    assert files_with(box.root, CANARY) == []


def test_secrets_kept_on_the_box_survive_its_restart(box):
    run = box.python(
        code("0 if os.path.exists('x.txt') else 60"), payload=PAYLOAD, secrets={"names": ["TOKEN"], "keep": "box"}
    )
    run.until_journal("first_line")
    with open(run.path("x.txt"), "w"):
        pass
    kill_all(run)
    run.until(lambda s: not s["supervised"])
    run.wake()
    run.until(lambda s: s["ended"] or s["attempt"] == 2)
    assert run.status()["state"] != "waiting"
