"""The environment that work on this box should see: a login shell's, plus what the container was given."""

import os
from typing import Dict, List, NamedTuple, Optional, Tuple

from outlive.probes.interpreters import find_python, torch_probe
from outlive.probes.secret_values import looks_secret

__all__ = [
    "LoginEnvironment",
    "find_python",
    "login_environment",
    "login_reading",
    "looks_secret",
    "merge",
    "torch_probe",
]

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_PERSONAL = frozenset(
    "_ HOME HOSTNAME INVOCATION_ID JOURNAL_STREAM LOGNAME MAIL NOTIFY_SOCKET OLDPWD PS1 PWD SHELL SHLVL TERM "
    "USER USERNAME WATCHDOG_PID WATCHDOG_USEC XDG_RUNTIME_DIR XDG_SESSION_ID".split()
)
"""Said of one process or one session, not of the box."""

_SESSION_PREFIXES = ("SSH_", "LC_", "LISTEN_", "TMUX", "BASH_FUNC_", "OUTLIVE_", "XDG_SESSION")


class LoginEnvironment(NamedTuple):
    """What was found. ``why_unknown`` is set when a source could not be read; ``kept`` is then what was left."""

    kept: Dict[str, str]
    dropped: List[str]
    """Names that look like secrets, sorted; their values were not kept anywhere."""
    shell: str
    why_unknown: str


def login_environment(timeout_s: float) -> Tuple[Dict[str, str], List[str]]:
    """Return (variables to keep, names dropped because they look like secrets), within ``timeout_s`` plus a second."""
    reading = login_reading(timeout_s)
    return reading.kept, reading.dropped


def login_reading(timeout_s: float) -> LoginEnvironment:
    """As ``login_environment``, with the shell that was asked and what could not be read.

    The login shell starts from almost nothing (no variable of the caller gets in), so what is kept comes
    from the box's own start-up files and from pid 1.
    """
    home, user, shell = _account()
    found, why = _ask_shell(shell, home, user, timeout_s)
    first = _first_process()
    merged = merge(found if found is not None else {"PATH": os.environ.get("PATH", _SYSTEM_PATH)}, first)
    merged["HOME"] = home
    if user:
        merged.update(USER=user, LOGNAME=user)
    merged["SHELL"] = shell
    dropped = sorted(name for name, value in merged.items() if looks_secret(name, value))
    kept = {name: value for name, value in sorted(merged.items()) if name not in set(dropped)}
    return LoginEnvironment(kept, dropped, shell, why)


def merge(login: Dict[str, str], first: Dict[str, str]) -> Dict[str, str]:
    """Put a login shell's variables over those of pid 1, without what belongs to one process or session.

    /etc/profile replaces PATH, and with it the directories that a container image had added. They come
    back after the login shell's own additions and before the system's.
    """
    merged = {}
    for source in (first, login):
        for name, value in source.items():
            if name not in _PERSONAL and not name.startswith(_SESSION_PREFIXES):
                merged[name] = value
    system = _SYSTEM_PATH.split(":")
    ours = _dirs(login)
    added = [dir for dir in ours if dir not in system] + [dir for dir in _dirs(first) if dir not in system]
    path = added + [dir for dir in ours + _dirs(first) if dir in system]
    merged["PATH"] = ":".join(dict.fromkeys(path)) or _SYSTEM_PATH
    return merged


def _dirs(source: Dict[str, str]) -> List[str]:
    # Empty and relative entries mean the current directory, which is another one for the work.
    return [dir for dir in source.get("PATH", "").split(":") if dir.startswith("/")]


def _ask_shell(shell: str, home: str, user: str, timeout_s: float) -> Tuple[Optional[Dict[str, str]], str]:
    """Run the shell and read its environment from behind a mark, past whatever start-up files print."""
    import binascii

    from outlive.probes.bounded import run_bounded

    mark = "outlive-" + binascii.hexlify(os.urandom(12)).decode("ascii")
    start = {"HOME": home, "SHELL": shell, "PATH": _SYSTEM_PATH, "TERM": "dumb"}
    if user:
        start.update(USER=user, LOGNAME=user)
    script = "printf %%s %s; exec env -0" % mark
    cwd = home if os.path.isdir(home) else "/"
    answer = run_bounded((shell, "-l", "-c", script), timeout_s, environ=start, cwd=cwd)
    _, seen, rest = answer.out.partition(mark.encode("ascii"))
    if answer.rc is None:
        return None, "login shell %s: %s" % (shell, answer.why)
    if not seen or answer.rc != 0:
        return None, "login shell %s ended with %s before it showed its environment" % (shell, answer.rc)
    found = {}
    for item in rest.split(b"\0"):
        name, equals, value = item.partition(b"=")
        if equals and name:
            found[os.fsdecode(name)] = os.fsdecode(value)
    return found, ""


def _first_process() -> Dict[str, str]:
    """Environment of pid 1 where it is a container's; a machine's init has nothing to say to the work."""
    from outlive.probes import process

    first = process.stat(1)
    if first is None or first.comm in ("systemd", "init", "launchd"):
        return {}
    return process.environ(1) or {}


def _account() -> Tuple[str, str, str]:
    """Home, name and shell of our user; containers run as users that no file lists."""
    home, user, shell = os.environ.get("HOME", "/"), "", ""
    try:
        import pwd

        entry = pwd.getpwuid(os.getuid())
        home, user, shell = entry.pw_dir, entry.pw_name, entry.pw_shell
    except (ImportError, KeyError):
        pass
    if not shell or os.path.basename(shell) in ("nologin", "false", "tcsh", "csh") or not os.access(shell, os.X_OK):
        # The C shells take no command together with -l.
        shell = "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"
    return home, user, shell
