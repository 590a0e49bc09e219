"""The process table by ``ps``, for systems without /proc (macOS ``local:``).

Start times are whole seconds here, which is enough to tell a process from a later one of the same number
in all but the first second of its life.
"""

from typing import Dict, List, Optional, Sequence

from outlive.probes.process import Stat

_TIMEOUT_S = 5.0
_COLUMNS = ("-o", "pid=", "-o", "ppid=", "-o", "stat=", "-o", "time=", "-o", "lstart=", "-o", "comm=")


def table(pid: Optional[int] = None) -> Dict[int, Stat]:
    """Return the processes that ``ps`` lists (all, or only ``pid``); empty where there is no ``ps``."""
    result: Dict[int, Stat] = {}
    for line in _ps(("-A",) if pid is None else ("-p", str(pid)), _COLUMNS):
        found = parse_line(line)
        if found is not None:
            result[found.pid] = found
    return result


def parse_line(line: str) -> Optional[Stat]:
    """Read one line of pid, ppid, state, time, start (five words) and command; None if it is not one."""
    import calendar
    import time

    words = line.split(None, 9)
    if len(words) < 9:
        return None
    try:
        started = calendar.timegm(time.strptime(" ".join(words[4:9]), "%a %b %d %H:%M:%S %Y"))
        return Stat(
            pid=int(words[0]),
            ppid=int(words[1]),
            state=words[2][:1],
            ticks=started,
            cpu_ticks=int(_clock_s(words[3]) * 100),
            threads=1,
            kernel=False,
            comm=words[9] if len(words) > 9 else "",
        )
    except ValueError:
        return None


def owner_uid(pid: int) -> Optional[int]:
    """Effective user id of ``pid`` as ``ps`` prints it; None if it does not."""
    for line in _ps(("-p", str(pid)), ("-o", "uid=")):
        if line.strip().isdigit():
            return int(line)
    return None


def command_line(pid: int) -> Optional[List[str]]:
    """Arguments of ``pid`` split at blanks: ``ps`` does not say where one ends."""
    for line in _ps(("-ww", "-p", str(pid)), ("-o", "command=")):
        if line.strip():
            return line.split()
    return None


def marked(env_name: str, uuid: str) -> List[int]:
    """Pids whose environment, where the system shows it, holds ``env_name=uuid``."""
    wanted = "%s=%s" % (env_name, uuid)
    result = []
    for line in _ps(("axeww",), ("-o", "pid=", "-o", "command=")):
        words = line.split()
        if len(words) > 1 and words[0].isdigit() and wanted in words[1:]:
            result.append(int(words[0]))
    return result


def boot_id() -> Optional[str]:
    """Identity of this boot by ``sysctl``; None where it has none."""
    from outlive.probes.bounded import run_bounded, text

    for key in ("kern.bootsessionuuid", "kern.boottime"):
        answer = run_bounded(("sysctl", "-n", key), _TIMEOUT_S)
        if answer.rc == 0 and answer.out.strip():
            return text(answer.out).strip()
    return None


def _ps(which: Sequence[str], columns: Sequence[str]) -> List[str]:
    import os

    from outlive.probes.bounded import run_bounded, text

    # The C locale fixes the words of the date; UTC keeps a start time equal across a change of summer time.
    environ = dict(os.environ, LC_ALL="C", LANG="C", TZ="UTC", COLUMNS="100000")
    answer = run_bounded(["ps"] + list(which) + list(columns), _TIMEOUT_S, environ=environ)
    return text(answer.out).splitlines()


def _clock_s(word: str) -> float:
    """Seconds of ``[days-][hours:]minutes:seconds[.hundredths]``."""
    days, _, clock = word.rpartition("-")
    total = 0.0
    for part in clock.split(":"):
        total = total * 60 + float(part)
    return total + (int(days) if days else 0) * 86400
