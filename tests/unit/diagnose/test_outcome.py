import pytest

from outlive.diagnose import outcome
from outlive.diagnose.fatal import hint
from outlive.diagnose.outcome import NOTHING_DECLARED, RULES, classify, fatal_lines
from outlive.wire.states import OUTCOME_CLASSES
from outlive.wire.values import Evidence


def ended(code=None, signal=None, **more):
    return Evidence(exit_code=code, signal=signal, exit_seen=True, **more)


def said(line, code=1, **more):
    return ended(code, fatal_lines=(line,), oom_kill_delta=0, **more)


UNSEEN = Evidence(exit_seen=False)

TABLE = [
    # ours
    ("stopped", ended(143, 15, our_stop="asked")),
    ("stopped", ended(0, our_stop="asked", artifacts_ok=True)),
    ("stopped", Evidence(our_stop="asked")),
    ("stopped", ended(137, 9, our_stop="superseded")),
    ("lease", ended(143, 15, our_stop="lease")),
    ("hung_exit", ended(137, 9, our_stop="hung", artifacts_ok=True)),
    ("suspect", ended(137, 9, our_stop="hung", artifacts_ok=False, artifacts_why="best.pt is missing")),
    # its own end
    ("succeeded", ended(0, artifacts_ok=True)),
    ("succeeded", ended(0, artifacts_ok=None, artifacts_why=NOTHING_DECLARED)),
    ("succeeded", ended(0, artifacts_ok=True, scheduler_word="TIMEOUT", notice="spot notice")),
    ("succeeded", ended(0, artifacts_ok=True, oom_kill_delta=2, machine_changed=True, fatal_lines=("ValueError: x",))),
    ("suspect", ended(0, artifacts_ok=False)),
    ("suspect", ended(0, artifacts_why=NOTHING_DECLARED, last_step=400, total_steps=1000)),
    ("unknown", ended(0)),
    ("unknown", ended(0, artifacts_why="the check did not finish")),
    ("preempted", ended(0, artifacts_ok=False, notice="spot notice")),
    ("preempted", ended(0, artifacts_ok=True, notice="spot notice", last_step=400, total_steps=1000)),
    ("preempted", ended(0, scheduler_word="PREEMPTED")),
    # scheduler, platform, machine
    ("oom_host", ended(137, 9, scheduler_word="OUT_OF_MEMORY")),
    ("oom_host", ended(137, scheduler_word="OOMKilled")),
    ("walltime", ended(143, 15, scheduler_word="TIMEOUT")),
    ("walltime", Evidence(scheduler_word="DeadlineExceeded")),
    ("preempted", ended(143, 15, scheduler_word="PREEMPTED")),
    ("reboot", Evidence(scheduler_word="NODE_FAIL")),
    ("unknown", ended(143, 15, scheduler_word="CANCELLED by 1002", oom_kill_delta=0)),
    ("reboot", Evidence(machine_changed=True)),
    ("reboot", Evidence(machine_changed=True, artifacts_ok=True)),
    ("reboot", ended(143, 15, machine_changed=True)),
    ("preempted", Evidence(machine_changed=True, notice="instance will be terminated")),
    ("code", said("KeyError: 'x'", machine_changed=True)),
    ("preempted", ended(143, 15, notice="spot notice")),
    (
        "preempted",
        ended(1, notice="spot notice", fatal_lines=("torch.distributed.elastic.SignalException: got signal: 15",)),
    ),
    ("code", said("TypeError: no", notice="spot notice")),
    # host memory
    ("oom_host", ended(137, 9, oom_kill_delta=1)),
    ("oom_host", ended(137, oom_kill_delta=3)),
    (
        "oom_host",
        ended(
            1, oom_kill_delta=1, fatal_lines=("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.",)
        ),
    ),
    ("oom_host", ended(1, oom_kill_delta=1)),
    ("oom_host", Evidence(oom_kill_delta=1)),
    ("code", ended(1, oom_kill_delta=1, fatal_lines=("KeyError: 'x'",))),
    ("oom_gpu", ended(1, oom_kill_delta=1, fatal_lines=("torch.OutOfMemoryError: CUDA out of memory. Tried",))),
    ("oom_host", said("MemoryError: Unable to allocate 9 GiB")),
    ("oom_host", said("slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.")),
    # hardware and driver
    ("gpu_fault", said("NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.")),
    ("gpu_fault", said("RuntimeError: CUDA error: uncorrectable ECC error encountered")),
    (
        "gpu_fault",
        ended(134, 6, fatal_lines=("NVRM: Xid (PCI:0000:02:00): 48, DBE", "RuntimeError: CUDA error: unknown")),
    ),
    ("unknown", said("NVRM: Xid (PCI:0000:02:00): 13, Graphics Exception")),
    ("code", said("RuntimeError: CUDA error: an illegal memory access was encountered")),
    ("driver", said("Failed to initialize NVML: Driver/library version mismatch")),
    ("driver", said("RuntimeError: The NVIDIA driver on your system is too old (found version 11040).")),
    # disk
    ("disk_bytes", said("OSError: [Errno 28] No space left on device: 'out/a.pt'")),
    ("disk_bytes", said("OSError: [Errno 28] No space left on device", disk_bytes_free=0, disk_inodes_free=0)),
    ("disk_inodes", said("OSError: [Errno 28] No space left on device", disk_bytes_free=10**10, disk_inodes_free=0)),
    ("disk_bytes", said("OSError: [Errno 122] Disk quota exceeded")),
    ("disk_bytes", ended(1, disk_refused="bytes")),
    ("disk_inodes", ended(1, disk_refused="inodes", fatal_lines=("OSError: something",))),
    (
        "disk_bytes",
        said("RuntimeError: PytorchStreamWriter failed writing file data/1: file write failed", disk_bytes_free=1000),
    ),
    (
        "unknown",
        said("RuntimeError: PytorchStreamWriter failed writing file data/1: file write failed", disk_bytes_free=10**12),
    ),
    ("config", said("RuntimeError: unable to write to file </torch_91_22_1>: No space left on device (28)")),
    # numbers
    ("nan", said("Loss is nan, stopping training")),
    ("nan", said("Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.")),
    ("nan", ended(1, nan_seen=True)),
    ("code", said("KeyError: 'x'", nan_seen=True)),
    # signals
    ("hangup", ended(129, 1)),
    ("hangup", ended(129)),
    (
        "config",
        ended(
            135,
            7,
            fatal_lines=("ERROR: Unexpected bus error encountered in worker. insufficient shared memory (shm).",),
        ),
    ),
    ("unknown", ended(135, 7, oom_kill_delta=0)),
    ("killed_unexplained", ended(137, 9, oom_kill_delta=0)),
    ("killed_unexplained", ended(143, 15, oom_kill_delta=0)),
    ("killed_unexplained", ended(137, oom_kill_delta=0)),
    ("unknown", ended(137, 9, oom_kill_delta=None)),
    ("unknown", ended(137, 9, oom_kill_delta=0, fatal_lines=("Watchdog caught collective operation timeout",))),
    ("code", ended(139, 11)),
    ("code", ended(134, 6, oom_kill_delta=0)),
    ("config", ended(153, 25)),
    ("unknown", ended(130, 2)),
    ("unknown", ended(138, 10)),
    # the log's last word
    ("oom_gpu", said("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB")),
    ("oom_gpu", ended(137, 9, oom_kill_delta=0, fatal_lines=("torch.OutOfMemoryError: CUDA out of memory.",))),
    (
        "network",
        said("requests.exceptions.ConnectionError: HTTPSConnectionPool(host='hub', port=443): Max retries exceeded"),
    ),
    ("network", said("wandb.errors.CommError: Run initialization has timed out after 90.0 sec")),
    ("network", said("ConnectionResetError: [Errno 104] Connection reset by peer")),
    ("config", said("huggingface_hub.errors.GatedRepoError: 401 Client Error.")),
    ("code", ended(1, fatal_lines=("requests.exceptions.ReadTimeout: x", "NameError: name 'y' is not defined"))),
    ("walltime", said("slurmstepd: error: *** JOB 1 ON n CANCELLED AT 2024-04-20T12:31:02 DUE TO TIME LIMIT ***")),
    ("preempted", said("slurmstepd: error: *** JOB 1 ON n CANCELLED AT 2024-04-20T12:31:02 DUE TO PREEMPTION ***")),
    ("config", said("train.py: error: unrecognized arguments: --foo", 2)),
    ("config", said("usage: train.py [-h] [--lr LR]", 2)),
    ("config", said("omegaconf.errors.ConfigAttributeError: Key 'lr' is not in struct")),
    ("config", said("RuntimeError: Error(s) in loading state_dict for Net:")),
    ("config", said("prog: error: give at least one file", 2)),
    ("code", said("Traceback (most recent call last):")),
    ("command_missing", ended(127)),
    ("command_missing", ended(126)),
    ("command_missing", said("bash: line 1: foo: command not found", 127)),
    ("command_missing", said("python: can't open file '/w/train.py': [Errno 2] No such file or directory", 2)),
    ("code", said("ModuleNotFoundError: No module named 'flash_attn'")),
    ("code", said("SyntaxError: invalid syntax")),
    ("code", said("AssertionError")),
    ("unknown", said("OSError: [Errno 5] Input/output error: 'a'")),
    ("unknown", said("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:")),
    (
        "oom_gpu",
        ended(
            1,
            fatal_lines=(
                "torch.OutOfMemoryError: CUDA out of memory.",
                "torch.distributed.DistBackendError: NCCL error: remote process exited",
                "ChildFailedError:",
            ),
        ),
    ),
    ("unknown", ended(1)),
    ("unknown", ended(255)),
    ("unknown", ended(None)),
    # nobody saw the end
    ("succeeded", Evidence(artifacts_ok=True)),
    ("succeeded", Evidence(artifacts_ok=True, machine_changed=False, fatal_lines=("ValueError: late",))),
    ("unknown", UNSEEN),
    ("unknown", Evidence(artifacts_ok=False, machine_changed=False, oom_kill_delta=0)),
    ("code", Evidence(artifacts_ok=False, fatal_lines=("ValueError: x",))),
    ("unknown", Evidence(artifacts_ok=False, fatal_lines=("requests.exceptions.ReadTimeout: x",))),
    ("unknown", Evidence(exit_code=137, signal=9, exit_seen=False, oom_kill_delta=0)),
]


@pytest.mark.parametrize("cls,evidence", TABLE, ids=["%d-%s" % (i, row[0]) for i, row in enumerate(TABLE)])
def test_table(cls, evidence):
    got = classify(evidence)
    assert (got.cls, got.remedy) == (cls, OUTCOME_CLASSES[cls]), got
    assert got.sentence and set(got.evidence) <= {f for r in RULES for f in r.fields}


def test_every_row_of_the_rules_is_reached_by_the_table():
    reached = set()
    for _, evidence in TABLE:
        case = outcome.Case(evidence)
        reached.add(next(i for i, r in enumerate(RULES) if r.when(case)))
    assert [i for i in range(len(RULES)) if i not in reached] == []


def test_every_class_of_the_wire_can_come_out():
    assert {classify(e).cls for _, e in TABLE} == set(OUTCOME_CLASSES)


def test_sentences_hold_the_evidence():
    assert "SIGKILL" in classify(ended(137, 9, oom_kill_delta=2)).sentence
    assert "2 time" in classify(ended(137, 9, oom_kill_delta=2)).sentence
    assert classify(Evidence(artifacts_ok=True)).sentence == "status unknown; artifacts complete"
    assert "best.pt is gone" in classify(ended(0, artifacts_ok=False, artifacts_why="best.pt is gone")).sentence
    assert "400 of 1000" in classify(ended(0, artifacts_ok=True, last_step=400, total_steps=1000)).sentence
    assert "cannot be read" in classify(ended(137, 9)).sentence
    assert classify(ended(127)).evidence["exit_code"] == 127


def test_no_automatic_remedy_rests_on_a_log_line_alone_when_nobody_saw_the_end():
    for line in (
        "requests.exceptions.ReadTimeout: x",
        "OSError: [Errno 28] No space left on device",
        "x DUE TO TIME LIMIT ***",
    ):
        assert classify(Evidence(fatal_lines=(line,), artifacts_ok=False)).remedy == "ask"


# -- fatal lines


def test_the_last_line_of_a_traceback_is_found_behind_any_rank():
    log = (
        b"step 1 loss 2.0\n[rank1]: Traceback (most recent call last):\n"
        b'[rank1]:   File "train.py", line 3, in <module>\n[rank1]:     loss = f(x)\n[rank1]: ValueError: bad shape\n'
    )
    assert fatal_lines(log) == ("ValueError: bad shape",)


def test_chained_exceptions_come_in_order():
    log = (
        b'Traceback (most recent call last):\n  File "a.py", line 1\n    x\n'
        b"socket.gaierror: [Errno -2] Name or service not known\n\n"
        b"During handling of the above exception, another exception occurred:\n\n"
        b'Traceback (most recent call last):\n  File "a.py", line 2\n    y\nKeyError: 1\n'
    )
    assert fatal_lines(log) == ("socket.gaierror: [Errno -2] Name or service not known", "KeyError: 1")


def test_what_follows_a_headline_exception_is_kept():
    log = (
        b'Traceback (most recent call last):\n  File "a.py", line 1\n'
        b'RuntimeError: Error(s) in loading state_dict for N:\n\tMissing key(s) in state_dict: "a".\n'
    )
    assert len(fatal_lines(log)) == 2 and hint(fatal_lines(log)).cls == "config"


def test_a_survived_exception_is_no_fatal_line():
    log = b'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: retried\n'
    assert fatal_lines(log) == ("ValueError: retried",)
    assert fatal_lines(log + b"step 1 loss 2\nstep 2 loss 2\nstep 3 loss 2\n") == ()
    xid = b"NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.\n"
    assert len(fatal_lines(xid + b"step 1 loss 2\nstep 2 loss 2\nstep 3 loss 2\n")) == 1


@pytest.mark.parametrize(
    "line",
    [
        "UserWarning: something is deprecated",
        "E cuda_dnn.cc:8310] Unable to register cuDNN factory: Attempting to register factory",
        "resource_tracker: There appear to be 1 leaked semaphore objects to clean up at shutdown",
        "0 errors, error_rate: 0.12",
        "INFO retrying after ConnectionError: x",
        "loss 2.3 error 0.1",
        "{'loss': 2.0}",
    ],
)
def test_harmless_lines_are_left_out(line):
    assert fatal_lines(line.encode() + b"\n") == ()


@pytest.mark.parametrize(
    "line",
    [
        "Killed", "Segmentation fault (core dumped)", "Bus error", "bash: foo: command not found",
        "train.py: error: unrecognized arguments: --x",
        "[12.3] NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.",
        "slurmstepd: error: Detected 1 oom-kill event(s)", "tee: out.log: No space left on device",
        "terminate called after throwing an instance of 'std::bad_alloc'", "KeyboardInterrupt",
    ],
)  # fmt: skip
def test_fatal_looking_lines_are_found(line):
    assert fatal_lines(b"hello\n" + line.encode()) != ()


def test_the_list_is_short_and_each_line_once():
    log = b"".join(b"[rank%d]: ValueError: same\n" % i for i in range(8)) + b"".join(
        b"ValueError: %d\n" % i for i in range(50)
    )
    assert len(fatal_lines(log)) == 20 and fatal_lines(log, 3) == ("ValueError: 47", "ValueError: 48", "ValueError: 49")
    assert fatal_lines(log[: 8 * 26].split(b"ValueError: 0")[0]) == ("ValueError: same",)
    assert fatal_lines(b"ValueError: " + b"x" * 10000) == ("ValueError: " + "x" * 388,)
    assert fatal_lines(b"ValueError: a", 0) == ()
