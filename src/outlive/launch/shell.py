"""Words for a POSIX shell: everything is quoted but what we wrote ourselves to be expanded."""

from __future__ import annotations

import shlex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from outlive.launch.description import Launch


class Raw(str):
    """A fragment that the shell shall expand. Never made from what somebody typed."""

    __slots__ = ()


def quote(word: str) -> str:
    """Return ``word`` as the shell needs it."""
    return str(word) if isinstance(word, Raw) else shlex.quote(word)


def lines(groups: Sequence[Sequence[str]], indent: str = "    ") -> str:
    """Return one command, a line per group of words."""
    return f" \\\n{indent}".join(" ".join(quote(word) for word in group) for group in groups if group)


def exports(pairs: Iterable[tuple[str, str]]) -> str:
    """Return ``export`` lines."""
    return "\n".join(f"export {name}={_value(value)}" for name, value in pairs)


def _value(text: str) -> str:
    quoted = quote(text)
    return f"'{quoted}'" if quoted.startswith("=") else quoted  # `A==b` is right and looks like a mistake


def need_checkpoints(launch: Launch, path: str = "") -> str:
    """Return the lines that look for the checkpoint directory: made on one node, demanded on each of several."""
    where = quote(path or launch.checkpoint_dir)
    if launch.nodes == 1:
        return f"mkdir -p {where}"
    return (
        f"if [ ! -d {where} ] || [ ! -w {where} ]; then\n"
        f"    printf '%s: no writable checkpoint directory %s: every node needs the same one mounted\\n' "
        f'"$(uname -n)" {where} >&2\n'
        "    exit 1\n"
        "fi"
    )
