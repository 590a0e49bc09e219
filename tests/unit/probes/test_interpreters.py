"""Interpreters, real ones; torch, by stub modules that answer as builds of it do."""

import os
import stat
import subprocess
import sys
import time

import pytest

from outlive.probes.interpreters import find_python, torch_probe


def script(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.fixture
def empty(tmp_path):
    """An environment in which only the system's own interpreters can be found."""
    (tmp_path / "home").mkdir()
    return {"HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "bin")}


def test_hints_come_first_and_say_why(empty):
    found = find_python([sys.executable], empty)
    assert found[0]["path"] == sys.executable and found[0]["why"] == "named beforehand"
    assert found[0]["version"] == "%d.%d.%d" % sys.version_info[:3]


def test_virtual_environment_is_not_mistaken_for_its_base(empty, tmp_path):
    base = os.path.join(sys.base_prefix, "bin", "python3")
    subprocess.run([base, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    env = dict(empty, VIRTUAL_ENV=str(tmp_path / "venv"), PATH=os.path.dirname(base))
    found = find_python([], env)
    assert found[0]["why"] == "VIRTUAL_ENV" and found[0]["venv"] is True
    assert found[0]["prefix"] == str(tmp_path / "venv")
    assert found[1]["path"] == base and found[1]["venv"] is False
    assert len({one["prefix"] for one in found}) == len(found), "each environment once"


def test_conda_before_path_and_the_usual_home(empty, tmp_path):
    fake = '#!/bin/sh\necho \'["3.10.1", "%s", "%s", true, ""]\'\n'
    for name in ("active", "home/miniconda3"):
        prefix = str(tmp_path / name)
        script(tmp_path / name / "bin/python", fake % (prefix, prefix))
    found = find_python([], dict(empty, CONDA_PREFIX=str(tmp_path / "active")))
    assert found[0]["why"] == "CONDA_PREFIX" and found[0]["version"] == "3.10.1"
    assert any(one["prefix"] == str(tmp_path / "home/miniconda3") for one in found)


def test_a_shim_is_looked_through_to_the_interpreter_it_chooses(empty, tmp_path):
    """A shim of pyenv starts a shell at each call, and chooses by the directory that it is called in."""
    shim = script(tmp_path / "pyenv/shims/python", '#!/bin/sh\nexec %s "$@"\n' % sys.executable)
    found = find_python([shim], empty)
    assert found[0]["path"] == sys.executable and found[0]["why"] == "named beforehand"
    wrapper = script(tmp_path / "site/bin/python", '#!/bin/sh\nexec %s "$@"\n' % sys.executable)
    found = find_python([wrapper], empty)
    assert found[0]["path"] == wrapper, "a wrapper that somebody wrote has its reasons"


def test_one_that_does_not_answer_stands_last_with_its_reason(empty, tmp_path):
    broken = script(tmp_path / "broken", "#!/bin/sh\necho no libpython >&2; exit 127\n")
    found = find_python([broken, sys.executable], empty)
    assert found[0]["path"] == sys.executable
    assert found[-1]["path"] == broken and found[-1]["version"] is None
    assert found[-1]["why_unknown"] == "no libpython"


def test_a_hanging_one_costs_no_more_than_the_budget(empty, tmp_path):
    slow = script(tmp_path / "slow", "#!/bin/sh\nsleep 60\n")
    begin_s = time.monotonic()
    found = find_python([slow], empty, budget_s=0.4)
    assert time.monotonic() - begin_s < 3
    assert found[-1]["why_unknown"] or found[0]["why_unknown"]


def test_none_is_an_empty_list_not_an_error(empty):
    assert all(one["path"].startswith("/") for one in find_python(["/nope/python", ""], empty))


STUB = """
__version__ = %(version)r
class version:
    cuda = %(cuda)r
    hip = None
class cuda:
    is_available = staticmethod(lambda: %(available)r)
    device_count = staticmethod(lambda: %(count)d)
    get_arch_list = staticmethod(lambda: ["sm_80", "sm_90"])
    get_device_name = staticmethod(lambda index: "NVIDIA H100 80GB HBM3")
    get_device_capability = staticmethod(lambda index: (9, 0))
    @staticmethod
    def init():
        raise RuntimeError("Found no NVIDIA driver on your system.\\nmore")
"""


def probe(tmp_path, content, timeout_s=20.0):
    (tmp_path / "torch.py").write_text(content)
    return torch_probe(sys.executable, timeout_s, dict(os.environ, PYTHONPATH=str(tmp_path)))


def test_torch_with_devices(tmp_path):
    found = probe(tmp_path, STUB % dict(version="2.6.0+cu124", cuda="12.4", available=True, count=2))
    assert found["installed"] and found["version"] == "2.6.0+cu124" and found["cuda_build"] == "12.4"
    assert found["cuda_available"] is True and found["device_count"] == 2
    assert found["arch_list"] == ["sm_80", "sm_90"] and found["devices"][1]["capability"] == "9.0"
    assert found["why_no_cuda"] == "" and found["why_unknown"] == ""


def test_a_cpu_build_says_so(tmp_path):
    found = probe(tmp_path, STUB % dict(version="2.6.0+cpu", cuda=None, available=False, count=0))
    assert found["cuda_available"] is False and found["device_count"] == 0
    assert "built without CUDA" in found["why_no_cuda"] and found["why_unknown"] == ""


def test_a_cuda_build_without_driver_gives_the_framework_s_reason(tmp_path):
    found = probe(tmp_path, STUB % dict(version="2.6.0", cuda="12.4", available=False, count=0))
    assert found["why_no_cuda"] == "Found no NVIDIA driver on your system."


def test_an_import_that_fails_is_unknown(tmp_path):
    found = probe(tmp_path, "print('noise')\nraise ImportError('libcudnn.so.9: cannot open')\n")
    assert found["installed"] is True and found["cuda_available"] is None
    assert found["why_unknown"] == "ImportError: libcudnn.so.9: cannot open"


def test_an_import_that_crashes_the_interpreter_is_unknown(tmp_path):
    found = probe(tmp_path, "import os\nos.kill(os.getpid(), 11)\n")
    assert found["installed"] is True and found["cuda_available"] is None and "-11" in found["why_unknown"]


def test_a_hanging_import_is_unknown_and_what_was_learned_stays(tmp_path):
    found = probe(tmp_path, "import time\ntime.sleep(60)\n", timeout_s=1.5)
    assert found["installed"] is True and found["version"] is None and "no answer" in found["why_unknown"]


def test_no_torch_and_no_python():
    found = torch_probe(sys.executable, 20, {"PATH": "/usr/bin", "PYTHONNOUSERSITE": "1"})
    if found["installed"] is False:
        assert "not installed" in found["why_no_cuda"] and found["why_unknown"] == ""
    assert torch_probe("/nope/python", 5)["why_unknown"]
