"""Which Python the work should use, and what its framework says of CUDA."""

import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from outlive.probes.bounded import last_line, run_bounded, text
from outlive.wire.clock import boot_s

_ASK = (
    "import sys,json;sys.stdout.write(json.dumps(['%d.%d.%d'%sys.version_info[:3],sys.prefix,"
    "getattr(sys,'base_prefix',sys.prefix),sys.maxsize>2**32,sys.executable]))"
)
_EACH_S = 5.0


def find_python(
    hints: Sequence[str],
    environ: Optional[Mapping[str, str]] = None,
    budget_s: float = 15.0,
) -> List[Dict[str, Any]]:
    """Return the interpreters found, the one to use first.

    ``hints`` are interpreters or prefixes known beforehand and come first; then the active virtual
    environment and conda environment of ``environ`` (default: our own), its PATH, and the usual homes of
    conda. Each is ``{"path", "why", "version", "prefix", "venv", "why_unknown"}``; one that is there but
    does not answer has ``version`` None and stands behind those that do. One environment is listed once.
    """
    env = dict(os.environ if environ is None else environ)
    end_s = boot_s() + budget_s
    result, silent, seen = [], [], set()
    for path, why in _candidates(hints, env):
        if path in seen or not (os.path.isfile(path) and os.access(path, os.X_OK)):
            continue
        seen.add(path)
        facts = _ask(path, why, env, end_s)
        if facts["version"] is None:
            silent.append(facts)
            continue
        if facts["prefix"] in seen:
            continue
        seen.add(facts["prefix"])
        result.append(facts)
    return result + silent


def _candidates(hints: Sequence[str], env: Mapping[str, str]) -> List[Tuple[str, str]]:
    found = []
    for hint in hints:
        hint = os.path.expanduser(hint)
        found.append((os.path.join(hint, "bin", "python") if os.path.isdir(hint) else hint, "named beforehand"))
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if env.get(name):
            found.append((os.path.join(env[name], "bin", "python"), name))
    for word in ("python3", "python"):
        for dir in env.get("PATH", os.defpath).split(os.pathsep):
            if dir.startswith("/"):
                found.append((os.path.join(dir, word), "PATH"))
    home = env.get("HOME") or os.path.expanduser("~")
    for prefix in ("/opt/conda", "/opt/miniconda3", "/opt/miniforge3"):
        found.append((os.path.join(prefix, "bin", "python"), "usual home of conda"))
    for name in ("miniconda3", "anaconda3", "miniforge3", "mambaforge", ".venv", "venv"):
        found.append((os.path.join(home, name, "bin", "python"), "usual home of conda or a venv"))
    for dir in ("/usr/local/bin", "/usr/bin"):
        found.append((os.path.join(dir, "python3"), "system"))
    return found


def _ask(path: str, why: str, env: Dict[str, str], end_s: float) -> Dict[str, Any]:
    import json

    facts: Dict[str, Any] = {"path": path, "why": why, "version": None, "prefix": None, "venv": None, "why_unknown": ""}
    left_s = min(_EACH_S, end_s - boot_s())
    if left_s <= 0:
        facts["why_unknown"] = "no time left to ask"
        return facts
    answer = run_bounded((path, "-I", "-S", "-c", _ASK), left_s, environ=env, cwd="/")
    try:
        version, prefix, base, wide, real = json.loads(text(answer.out))
    except ValueError:
        facts["why_unknown"] = answer.why or last_line(answer.out, answer.err) or "ended with %s" % answer.rc
        return facts
    if is_shim(path) and os.path.isabs(real) and os.access(real, os.X_OK):
        facts["path"] = path = real
    # Without site (-S) older versions do not set a virtual environment's prefix: its own file tells.
    own = os.path.dirname(os.path.dirname(path))
    venv = prefix != base or os.path.exists(os.path.join(own, "pyvenv.cfg"))
    facts.update(version=version, prefix=own if venv else prefix, venv=venv)
    if not wide:
        facts["why_unknown"] = "a 32-bit interpreter"
    return facts


def is_shim(path: str) -> bool:
    """Whether it only chooses an interpreter (pyenv, asdf, mise): each call would pay for a shell and the choice.

    And it chooses by the directory that it is called in, so one box would have several answers.
    """
    return os.path.basename(os.path.dirname(path)) == "shims"


_TORCH = r"""
import sys, json
mark = sys.argv[1]
out = {}
def say(**facts):
    out.update(facts)
    sys.stdout.write("\n" + mark + json.dumps(out) + "\n"); sys.stdout.flush()
try:
    import importlib.util
    if importlib.util.find_spec("torch") is None:
        say(installed=False); sys.exit(0)
    say(installed=True)
    import torch
    version = getattr(torch, "version", None)
    say(version=str(getattr(torch, "__version__", "")) or None, cuda_build=getattr(version, "cuda", None),
        hip_build=getattr(version, "hip", None))
    say(cuda_available=bool(torch.cuda.is_available()))
    say(device_count=int(torch.cuda.device_count()))
    if out["cuda_available"]:
        say(arch_list=list(torch.cuda.get_arch_list()),
            devices=[{"name": torch.cuda.get_device_name(i),
                      "capability": "%d.%d" % tuple(torch.cuda.get_device_capability(i))}
                     for i in range(out["device_count"])])
    else:
        try:
            torch.cuda.init()
        except BaseException as error:
            say(refusal=str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__)
except SystemExit:
    pass
except BaseException as error:
    say(error="%s: %s" % (type(error).__name__, str(error).strip()[:300]))
"""


def torch_probe(python: str, timeout_s: float, environ: Optional[Mapping[str, str]] = None) -> Dict[str, Any]:
    """Ask ``python`` about torch, within ``timeout_s`` plus a second.

    Returns ``installed version cuda_build hip_build cuda_available device_count arch_list devices``, each
    None when unknown (``why_unknown`` says why), and ``why_no_cuda``: where CUDA is known not to be
    available, the reason in words, else empty. What was learned before the deadline is kept.
    """
    import binascii
    import json

    facts: Dict[str, Any] = dict.fromkeys(
        ("installed", "version", "cuda_build", "hip_build", "cuda_available", "device_count", "arch_list", "devices")
    )
    facts.update(python=python, why_no_cuda="", why_unknown="")
    mark = "outlive-" + binascii.hexlify(os.urandom(8)).decode("ascii")
    env = dict(os.environ if environ is None else environ)
    answer = run_bounded((python, "-c", _TORCH, mark), timeout_s, environ=env, cwd="/")
    said: Dict[str, Any] = {}
    for line in text(answer.out).splitlines():
        if line.startswith(mark):
            try:
                said = json.loads(line[len(mark) :])
            except ValueError:
                continue
    facts.update((name, said[name]) for name in list(facts) if name in said)
    if said.get("error"):
        facts["why_unknown"] = said["error"]
    elif answer.why:
        facts["why_unknown"] = answer.why
    elif not said or answer.rc != 0:
        # What it printed to standard output is our own marked lines; a negative status is a signal.
        facts["why_unknown"] = "python ended with %s %s" % (answer.rc, last_line(answer.err))
    if facts["installed"] is False:
        facts["why_no_cuda"] = "torch is not installed for this interpreter"
    elif facts["cuda_available"] is False:
        facts["why_no_cuda"] = _no_cuda(facts, str(said.get("refusal") or ""))
    return facts


def _no_cuda(facts: Dict[str, Any], refusal: str) -> str:
    if not facts["cuda_build"] and not facts["hip_build"]:
        return "this torch was built without CUDA (a CPU build)"
    return refusal or "torch was built for CUDA %s and finds no usable GPU" % facts["cuda_build"]
