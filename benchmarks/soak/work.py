"""What the soak kills: a training whose every byte is known beforehand. Standard library, no dependence on speed.

Its state is a chain of digests, so a step that was left out or done twice ends in another result. It saves aside in two
halves, as slowly as real saves are, and resumes from the newest checkpoint whose own digest holds.
"""

import hashlib
import json
import os
import signal
import sys
import tempfile
import time

EVERY = 5


def step_state(state, step):
    """The state after a step."""
    return hashlib.sha256(f"{state}/{step}".encode("ascii")).hexdigest()


def final(steps):
    """The result of an undisturbed run."""
    state = "start"
    for step in range(1, steps + 1):
        state = step_state(state, step)
    return {"step": steps, "state": state}


def content(step, state):
    """A checkpoint's bytes; its own digest is the last field."""
    body = {"step": step, "state": state, "weights": [state[i % 60 : i % 60 + 4] for i in range(800)]}
    body["sha256"] = hashlib.sha256(json.dumps(body, sort_keys=True).encode("ascii")).hexdigest()
    return json.dumps(body)


def load(path):
    """The state of a checkpoint, None when it is not whole or not what its name says."""
    try:
        with open(path) as handle:
            body = json.load(handle)
        digest = body.pop("sha256")
        if hashlib.sha256(json.dumps(body, sort_keys=True).encode("ascii")).hexdigest() != digest:
            return None
        return body["state"] if f"step-{body['step']:06d}.json" == os.path.basename(path) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def once():
    """Whether this is the first call of this run. The mark is no part of the run: it would be missed at a purge."""
    mark = os.path.join(tempfile.gettempdir(), "once-" + os.path.basename(os.path.dirname(os.getcwd())))
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


def main(steps, step_s, modes):
    """Train. What ``modes`` may hold:

    noise  the log holds what logs should not       talks  two kilobytes a step
    flood  six megabytes of log at once             deaf   ignores SIGTERM
    hog    takes all memory, once                   liar   says that it is done, and writes nothing
    mute   ends well without its result             slow   takes its time
    """
    noise, liar = "noise" in modes, "liar" in modes
    if "deaf" in modes:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.makedirs("ckpt", exist_ok=True)
    state, step = "start", 0
    for name in sorted((n for n in os.listdir("ckpt") if n.startswith("step-") and n.endswith(".json")), reverse=True):
        found = load("ckpt/" + name)
        if found is not None:
            state, step = found, int(name[5:-5])
            break
    print("begins at", step, flush=True)
    while step < steps:
        step += 1
        state = step_state(state, step)
        time.sleep(step_s * 4 if "slow" in modes else step_s)
        print(f"step {step}/{steps} loss {1 + int(state[:4], 16) / 65536 / step:.5f}", flush=True)
        if noise:
            sys.stdout.buffer.write(b"\x00\x00\xff\xfe \x1b[2J %d%%\r" % step * 20 + b"\n")
            sys.stdout.buffer.flush()
        if "talks" in modes:
            print(f"x{step:1999d}", flush=True)
        if "flood" in modes and step == 12 and once():
            for number in range(60000):
                print(f"line {number} {state} and so on, and on")
        if "hog" in modes and step == 22 and once():
            hog = [bytearray(b"x" * (1 << 24)) for _ in range(64)]
            print("had", len(hog), flush=True)
        if step % EVERY == 0 and not liar:
            text = content(step, state)
            with open("ckpt/.aside", "w") as out:
                out.write(text[: len(text) // 2])
                out.flush()
                time.sleep(0.02)
                out.write(text[len(text) // 2 :])
                out.flush()
                os.fsync(out.fileno())
            os.replace("ckpt/.aside", f"ckpt/step-{step:06d}.json")
    if liar or "mute" in modes:
        print("done, everything is saved", flush=True)
        return
    with open("result.aside", "w") as out:
        json.dump({"step": step, "state": state}, out)
        out.flush()
        os.fsync(out.fileno())
    os.replace("result.aside", "result.json")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])
