"""Glob patterns over paths of a manifest, and the default list of what nobody wants back.

In a pattern ``*`` and ``?`` stay inside one name, ``**`` crosses any number of directories, and a pattern that names a
directory means everything below it.
"""

import re
from typing import Callable, Iterable, List, Pattern

DEFAULT_IGNORE = (
    # our own staging
    ".outlive-part*",
    # version control: its objects are in the snapshot or on a server
    ".git",
    ".hg",
    ".svn",
    # interpreters and tools rebuild these
    "__pycache__",
    "*.pyc",
    "*.pyo",
    ".cache",
    ".ipynb_checkpoints",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".venv",
    "node_modules",
    "*.egg-info",
    # compiled kernels
    ".nv",
    ".triton",
    "torchinductor_*",
    # halves of a write that never became a file
    "*.tmp",
    "*.swp",
    "*~",
    ".~lock.*",
    ".nfs*",
    ".fuse_hidden*",
    ".DS_Store",
    # tracker debris; the records of an offline run are results and stay
    "wandb/latest-run",
    "wandb/debug*.log",
    "wandb/**/logs/debug*.log",
    "wandb/**/tmp",
)
"""A pattern without ``/`` is compared with every name on the path, one with ``/`` with the path from the root."""


def compile_glob(pattern: str) -> Pattern[str]:
    """Return a regex that fully matches the paths meant by ``pattern`` and everything below a directory it names."""
    out: List[str] = []
    i = 0
    while i < len(pattern):
        c = pattern[i]
        if pattern.startswith("**/", i):
            out.append("(?:[^/]+/)*")
            i += 3
            continue
        if pattern.startswith("**", i):
            out.append(".*")
            i += 2
            continue
        if c == "*":
            out.append("[^/]*")
        elif c == "?":
            out.append("[^/]")
        elif c == "[":
            end = pattern.find("]", i + 2)
            if end < 0:
                out.append(r"\[")
            else:
                body = pattern[i + 1 : end]
                negated = body[0] in "!^"
                body = (body[1:] if negated else body).replace("\\", r"\\").replace("[", r"\[").replace("^", r"\^")
                out.append("(?!/)[%s%s]" % ("^" if negated else "", body))
                i = end
        else:
            out.append(re.escape(c))
        i += 1
    try:
        return re.compile("(?s:%s)(?:/(?s:.*))?" % "".join(out))
    except re.error:  # a range such as [z-a]: the brackets were part of a name
        return re.compile("(?s:%s)(?:/(?s:.*))?" % re.escape(pattern))


def ignorer(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Return a predicate that says whether a relative path, or a directory above it, is ignored."""
    named: List[Pattern[str]] = []
    rooted: List[Pattern[str]] = []
    for pattern in patterns:
        stripped = pattern.strip("/")
        (rooted if "/" in stripped else named).append(compile_glob(stripped))

    def ignored(path: str) -> bool:
        if any(r.fullmatch(path) for r in rooted):
            return True
        return any(r.fullmatch(name) for name in path.split("/") for r in named)

    return ignored
