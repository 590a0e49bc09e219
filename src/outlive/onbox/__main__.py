"""Entry of the packed program: ``call``, ``supervise``, ``launch``, ``lease``, ``child``.

Also from a source tree: ``python -m outlive.onbox call < request``.
"""

import json
import sys
from typing import Any, Callable, Dict, List


def _child(name: str) -> int:
    import os

    try:
        os.nice(10)
    except OSError:
        pass  # priority is a courtesy
    request = json.loads(sys.stdin.buffer.read().decode("utf-8"))
    try:
        answer = _children()[name](request)
    except (OSError, ValueError, MemoryError) as error:
        answer = {"error": "%s: %s" % (type(error).__name__, error)}
    sys.stdout.write(json.dumps(answer))
    return 0


def _children() -> Dict[str, Callable[[Dict[str, Any]], Dict[str, Any]]]:
    from outlive.onbox import durable, notice, prove

    return {"prove": prove.checkpoint, "roster": prove.roster, "copy": durable.copy, "notice": notice.post, "gpu": _gpu}


def _gpu(request: Dict[str, Any]) -> Dict[str, Any]:
    from outlive.probes.gpu import gpus

    reading = gpus(timeout_s=10.0)
    return dict(reading.to_wire())


def main(argv: List[str]) -> int:
    """Dispatch one entry. Returns the exit status."""
    return entry(argv)()


def entry(argv: List[str]) -> Callable[[], int]:
    """Import what one entry needs, and return what does its work and returns the exit status."""
    if argv[:1] == ["call"]:
        from outlive.onbox.calls import serve

        return lambda: serve(sys.stdin.buffer, sys.stdout.buffer)
    if argv[:1] == ["supervise"] and len(argv) == 2:
        from outlive.onbox.supervisor import main as supervise

        return lambda: supervise(argv[1])
    if argv[:1] == ["launch"] and len(argv) == 3:
        from outlive.onbox.launch import main as launch

        return lambda: launch(argv[1], int(argv[2]))
    if argv[:1] == ["lease"] and len(argv) == 2:
        from outlive.onbox.boxlease import main as lease

        return lambda: lease(argv[1])
    if argv[:1] == ["child"] and len(argv) == 2:
        return lambda: _child(argv[1])
    return _usage


def _usage() -> int:
    sys.stderr.write(
        "usage: supervisor.pyz call | supervise RUN_DIR | launch RUN_DIR ATTEMPT | lease ROOT | child NAME\n"
    )
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
