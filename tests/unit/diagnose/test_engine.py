"""The engine on whole logs: who failed first, what followed, and what was no failure at all."""

import random
import re
from pathlib import Path

import pytest

from outlive.diagnose.engine import Engine
from outlive.diagnose.prefixes import strip_prefixes
from outlive.diagnose.rulebook import Rulebook, rulebook
from outlive.diagnose.verdict import judge

RECORDED = Path(__file__).resolve().parents[2] / "recorded" / "diagnose"
SETS = ("second.txt", "third.txt", "fourth.txt", "fifth.txt")
BENIGN = {"healthy", "benign_warning", "fp16_overflow_benign"}
LOSSES = "".join("step %d loss %.2f\n" % (n, 3.0 - n * 0.01) for n in range(20))


def read(*logs):
    engine = Engine()
    for number, log in enumerate(logs):
        engine.begin("log%d" % number)
        engine.feed(log if isinstance(log, bytes) else log.encode("utf-8"))
    return judge(engine)


def root(*logs):
    errors = [f for f in read(*logs) if f.severity == "error"]
    return errors[0].cls if errors else None


def cases():
    text = "".join((RECORDED / name).read_text("utf-8") for name in SETS)
    for part in re.split(r"(?m)^=== ", text)[1:]:
        head, log = part.split("\n", 1)
        words = [w.strip() for w in head.split("|", 3)]
        yield words[0], words[1].split(","), log


def test_the_recorded_sets_stay_understood():
    wrong, alarms, count = [], [], 0
    for name, labels, log in cases():
        found = read(log)
        count += 1
        if labels[0] in BENIGN:
            if any(f.severity == "error" for f in found):
                alarms.append(name)
        elif not found or found[0].cls not in labels:
            wrong.append(name)
    assert count > 270
    assert not alarms
    assert len(wrong) <= count * 0.05, wrong


@pytest.mark.parametrize(
    ("log", "cls"),
    [
        # the first failing rank, not the ranks that waited for it
        (
            "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
            "[rank1]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE)\n"
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n",
            "cuda_oom",
        ),
        # the counter of the scheduler, not the bus error that came of it
        (
            "srun: error: n1: task 3: Bus error\n"
            "slurmstepd: error: Detected 1 oom_kill event in StepId=9.0. Some step tasks have been OOM Killed.\n",
            "host_oom_cgroup",
        ),
        # shared memory says "no space" too
        (
            "RuntimeError: unable to write to file </torch_91_22>: No space left on device (28)\n",
            "shm_too_small",
        ),
        # bytes are free, inodes are not
        (
            "OSError: [Errno 28] No space left on device: 'a'\n"
            "/dev/sda2        25G   17G  6.9G  71% /\n/dev/sda2        1.6M  1.6M     4  100% /\n",
            "inode_exhausted",
        ),
        # hardware before everything that the program said about it
        (
            "RuntimeError: CUDA error: unspecified launch failure\n"
            "NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.\n",
            "xid_hardware",
        ),
        # a chain: the first exception is the cause of the second
        (
            "Traceback (most recent call last):\n  File 'a.py', line 3, in f\n"
            "socket.gaierror: [Errno -2] Name or service not known\n\n"
            "During handling of the above exception, another exception occurred:\n\n"
            "Traceback (most recent call last):\n  File 'b.py', line 4, in g\n"
            "RuntimeError: could not set up the model\n",
            "hf_download_stall",
        ),
        # an exception of a class that no rule knows, by the form of its traceback
        (
            "Traceback (most recent call last):\n  File 'a.py', line 3, in f\n    g()\nshop.Empty: nothing left\n",
            "python_exception_generic",
        ),
        # the destructor's complaint is not the failure
        (
            "RuntimeError: Error building extension 'cpu_adam'\n"
            "Exception ignored in: <function A.__del__ at 0x7f>\nTraceback (most recent call last):\n"
            "AttributeError: 'A' object has no attribute 'ds_opt_adam'\n",
            "extension_build_failed",
        ),
        ("step 88000 loss 1.92\n-- Reboot --\nkernel: Linux version 5.15.0\n", "reboot"),
        (LOSSES + "step 20 loss nan\nstep 21 loss nan\nstep 22 loss nan\n", "nan_loss"),
        (LOSSES + "step 20 loss 9.2\nstep 21 loss 9.9\nstep 22 loss 9.7\n", "loss_spike_divergence"),
    ],
)
def test_the_root_cause_wins(log, cls):
    assert root(log) == cls


@pytest.mark.parametrize(
    "log",
    [
        LOSSES,
        "Traceback (most recent call last):\n  File 'a.py', line 1, in f\nValueError: bad line\n" + LOSSES,
        "WARNING: CUDA out of memory with batch size 64, trying again with 32\n" + LOSSES,
        "Retrying in 1s [Retry 1/5].\nrequests.exceptions.ReadTimeout: Read timed out.\n" + LOSSES,
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768\n" + LOSSES,
        "E0000 cuda_dnn.cc:8310] Unable to register cuDNN factory: one has already been registered\n" + LOSSES,
        "tests/test_a.py::test_raises_OutOfMemoryError PASSED\n==== 2 passed in 1.2s ====\n",
        "n1:3:9 [0] NCCL INFO NET/Plugin: Failed to find ncclNetPlugin_v8 symbol.\n" + LOSSES,
        LOSSES + "step 20 loss 9.2\nstep 21 loss 2.8\nstep 22 loss 2.7\n",
        "UserWarning: resource_tracker: There appear to be 1 leaked semaphore objects to clean up at shutdown\n",
        "",
    ],
)
def test_nothing_is_wrong_here(log):
    assert root(log) is None


def test_ranks_in_one_stream_and_in_logs_of_their_own_give_the_same_root():
    first = "[rank3]: RuntimeError: CUDA error: device-side assert triggered\n"
    others = "[rank0]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting\n"
    assert root(first + others) == root(others + first) == root(others, first) == "device_side_assert"


def test_evidence_has_place_and_rank_and_consequences_are_folded():
    finding = read("a\n[rank5]: torch.OutOfMemoryError: CUDA out of memory.\n[rank1]: ncclRemoteError: x\n")[0]
    assert (finding.evidence[0].line, finding.evidence[0].rank) == (2, 5)
    assert "peer-died" in finding.consequences


def test_any_chunks_give_the_same_findings():
    log = (LOSSES + "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n").encode()
    whole = [(f.rule, f.times) for f in read(log)]
    engine = Engine()
    engine.begin("log0")
    for i in range(0, len(log), 7):
        engine.feed(log[i : i + 7])
    assert [(f.rule, f.times) for f in judge(engine)] == whole


def test_memory_does_not_grow_with_the_log():
    engine = Engine()
    engine.begin("x")
    for n in range(3000):
        engine.feed(b"[rank%d]: RuntimeError: CUDA out of memory. Tried to allocate %d MiB\n" % (n % 64, n))
    kept = engine.kept["gpu-out-of-memory"]
    assert kept.count == 3000 and len(kept.all()) < 20
    assert judge(engine)[0].times == 3000


def test_hostile_input_ends_and_costs_no_more_than_its_size():
    random.seed(7)
    words = [
        b"Error",
        b"error:",
        b"CUDA",
        b"NCCL",
        b"No space left",
        b"(",
        b"[",
        b"\xff\xfe",
        b"\xe4\xb8",
        b"\r",
        b"\x1b[31m",
    ]
    inputs = [
        bytes(random.randrange(256) for _ in range(20000)),
        b"\r" * 1000000,
        b"Error" * 20000,
        b"(" * 100000,
        b"loss " + b"9" * 100000,
        b"a." * 50000 + b"Error: x",
        b" ".join(random.choice(words) for _ in range(20000)),
        "錯誤：記憶體不足".encode("utf-8")[:-1] * 2000,
    ]
    for data in inputs:
        engine = Engine()
        engine.begin("")
        engine.feed(data)
        assert all(found.evidence for found in judge(engine)), "a finding without a line to rest on"


def test_work_grows_with_the_log_and_not_with_its_square():
    def tried(lines):
        engine = Engine(Rulebook(_data()))
        engine.begin("")
        engine.feed(b"".join(b"%s failed with Error: cannot connect to host\n" % word for word in lines))
        judge(engine)
        return engine.book.tried

    words = [bytes(random.Random(n).sample(range(97, 123), 9)) for n in range(400)]
    assert tried(words) <= 3 * 4 * tried(words[:100])


def _data():
    import json
    import pkgutil

    return json.loads(pkgutil.get_data("outlive.diagnose", "patterns.json").decode("utf-8"))


def test_a_rule_is_compiled_only_when_its_words_stand_in_the_log():
    book = Rulebook(_data())
    assert book.hits("Epoch 3 done in 12 s", "Epoch 3 done in 12 s") == ()
    assert book.tried == 0


def test_numbers_decide_where_they_carry_meaning():
    book = rulebook()
    assert "native-crash" in [h.rule.id for h in book.hits("exitcode : -11 (pid: 4)", "exitcode : -11 (pid: 4)")]
    assert "native-crash" not in [h.rule.id for h in book.hits("exitcode : -15 (pid: 4)", "exitcode : -15 (pid: 4)")]


def test_a_line_met_before_keeps_its_own_place_rank_and_numbers():
    log = b"".join(
        b"[rank%d]: RuntimeError: CUDA out of memory. Tried to allocate %d MiB\n" % (n % 10, n) for n in range(90)
    )
    engine = Engine()
    engine.feed(log)
    judge(engine)
    kept = engine.kept["gpu-out-of-memory"]
    assert kept.count == 90
    assert [e.line for e in kept.all()] == [1, 2, 3, 4, 5, 6, 85, 86, 87, 88, 89, 90]
    assert (kept.all()[-1].rank, kept.all()[-1].text) == (
        9,
        "RuntimeError: CUDA out of memory. Tried to allocate 89 MiB",
    )


def test_the_cause_of_a_first_collective_is_seen_behind_lines_like_it():
    engine = Engine()
    words = b"Watchdog caught collective operation timeout: WorkNCCL(SeqNum=%d, OpType=ALLREDUCE)\n"
    engine.feed(b"".join(words % n for n in (8, 9, 7, 1)))
    assert engine.facts["first_collective"] == 1


def test_a_bar_of_any_length_is_one_line_with_its_last_state():
    bar = b"".join(b"\r  3%%|x| %d/900000 [00:01<00:02, 1.0it/s]" % n for n in range(20000))
    for chunk in (1 << 20, 4099):
        engine = Engine()
        data = bar + b"\r     \r" + b"x" * 300000 + b"\rRuntimeError: CUDA out of memory. Tried\r   \nend\n"
        for i in range(0, len(data), chunk):
            engine.feed(data[i : i + chunk])
        assert [f.rule for f in judge(engine)] == ["gpu-out-of-memory"]
        assert engine.lines == 2 and list(engine.tail) == ["RuntimeError: CUDA out of memory. Tried", "end"]


@pytest.mark.parametrize(
    ("end", "rule"),
    [
        ([], None),
        ([9.1] * 5, "loss-diverged"),
        (["nan"] * 3, "nan-loss"),
        (["0.0"] * 3, "nan-loss"),
    ],
)
def test_a_long_log_whose_last_numbers_are_quiet_is_quiet_and_another_is_not(end, rule):
    lines = ["step %d loss %.3f gnorm 0.5 %s" % (n, 3 - n / 30000, "." * 30) for n in range(30000)]
    lines += ["step %d loss %s gnorm 0.5" % (30000 + n, value) for n, value in enumerate(end)]
    found = [f.rule for f in read("\n".join(lines) + "\n")]
    assert found == ([rule] if rule else [])


def test_strings_find_every_rule_that_all_patterns_tried_one_by_one_would_find():
    book, data = Rulebook(_data()), _data()
    patterns = [(rule[0], role, re.compile(text), rule[6]) for rule in data["rules"] for text, role, _ in rule[5]]
    lines = sorted({line for _, _, log in cases() for line in log.split("\n") if line.strip()})
    for line in random.Random(3).sample(lines, 60):
        bare = strip_prefixes(line).strip()
        best = {}
        for id, role, pattern, anti in patterns:
            if (pattern.search(bare) or pattern.search(line)) and not any(re.search(a, line) for a in anti):
                best[id] = min(role, best.get(id, role))
        assert {hit.rule.id: hit.role for hit in book.hits(line)} == best, line
