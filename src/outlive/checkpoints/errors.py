"""What can go wrong with checkpoints. Every error says what happened, what is safe, and what to do next.

CheckpointError
  NoGoodCheckpoint     something was recorded, and nothing of it can be used
  Damaged              one checkpoint contradicts its record
  UnknownFormat        not one of ours, and of no kind that is recognised
  NewerFormat          written by a later version
  Locked               another process writes this directory
  NoRoom               the disk has too few bytes or inodes
  DurableUnavailable   the durable place is not there, not mounted, or refuses
  Mismatch             the model has other keys or shapes
  ConfigChanged        the training was started with another configuration
"""

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple


class CheckpointError(Exception):
    """Base of all. ``what`` happened, ``safe``: what still holds, ``next``: what to do."""

    def __init__(self, what: str, safe: str = "", next: str = "") -> None:
        self.what = what
        self.safe = safe
        self.next = next
        super().__init__("\n".join(part for part in (what, safe, next) if part))


class Bad(NamedTuple):
    """One checkpoint that cannot be used."""

    name: str
    where: str
    why: str


class NoGoodCheckpoint(CheckpointError):
    """Checkpoints were recorded, and none of them is good. ``bad`` names them."""

    def __init__(self, directory: str, bad: Sequence[Bad]) -> None:
        self.directory = directory
        self.bad: List[Bad] = list(bad)
        lines = ["no good checkpoint in %s, although some were recorded" % directory]
        lines += ["  %s: %s (%s)" % (one.name, one.why, one.where) for one in self.bad]
        super().__init__(
            "\n".join(lines),
            "Nothing was deleted, and the training was not begun again.",
            "Bring a good one back, or begin again on purpose: resume(allow_restart=True).",
        )


class Damaged(CheckpointError):
    """A checkpoint contradicts its record, or has none that is whole. ``why`` says it in a few words."""

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__("%s is damaged: %s" % (path, why), "Nothing was changed.", "Use an older one.")


class UnknownFormat(CheckpointError):
    """Not a checkpoint that is known here."""

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(
            "%s is no checkpoint that is known here: %s" % (path, why),
            "Nothing was changed.",
            "Known: this package's own, torch .pt and .pth, safetensors, Hugging Face folders, Lightning .ckpt, "
            "torch.distributed.checkpoint and DeepSpeed folders.",
        )


class NewerFormat(CheckpointError):
    """Written by a later version of outlive."""

    def __init__(self, path: str, version: Any, known: int) -> None:
        self.path = path
        self.version = version
        self.why = "format version %s, this outlive reads up to %d" % (version, known)
        super().__init__(
            "%s: %s" % (path, self.why),
            "It was not touched, and nothing older was taken in its place.",
            "Use the outlive that wrote it, or a later one.",
        )


class Locked(CheckpointError):
    """Another process writes this directory."""

    def __init__(self, directory: str, owner: str) -> None:
        self.directory = directory
        self.owner = owner
        super().__init__(
            "%s is written by another process: %s" % (directory, owner),
            "Nothing was changed there; the other one goes on.",
            "Stop the other one, or give this training a directory of its own.",
        )


class NoRoom(CheckpointError):
    """Too few bytes or inodes for a save. ``need`` and ``free`` count ``unit``."""

    def __init__(self, path: str, unit: str, need: int, free: Optional[int], during: str = "") -> None:
        self.path = path
        self.unit = unit
        self.need = need
        self.free = free
        self.during = during
        if during:
            what = "no room left on the disk of %s while %s was written (%s needed in all%s)" % (
                path,
                during,
                _amount(need, unit) if need else "an unknown number",
                "" if free is None else ", %s free now" % _amount(free, unit),
            )
        else:
            have = "an unknown number" if free is None else _amount(free, unit)
            what = "no room for a checkpoint in %s: %s needed, %s free" % (path, _amount(need, unit), have)
        super().__init__(
            what,
            "The checkpoints that were there are untouched.",
            "Free some space, keep fewer checkpoints, or use another disk.",
        )


class DurableUnavailable(CheckpointError):
    """The durable place cannot be used now."""

    def __init__(self, place: str, why: str) -> None:
        self.place = place
        self.why = why
        super().__init__(
            "the durable place %s cannot be used: %s" % (place, why),
            "The checkpoints on this machine are untouched; they are the only copies of what is not yet there.",
            "Mount or repair it; the next copy takes what is missing.",
        )


class Mismatch(CheckpointError):
    """Keys or shapes differ. ``rows`` are (key, in the checkpoint, in the model); "-" means absent."""

    def __init__(self, path: str, rows: Sequence[Tuple[str, str, str]], most: int = 12) -> None:
        self.path = path
        self.rows = list(rows)
        shown = self.rows[:most]
        table = [("key", "in the checkpoint", "in the model")] + shown
        widths = [max(len(row[i]) for row in table) for i in range(2)]
        lines = ["  %s  %s  %s" % (a.ljust(widths[0]), b.ljust(widths[1]), c) for a, b, c in table]
        if len(self.rows) > most:
            lines.append("  and %d more" % (len(self.rows) - most))
        super().__init__(
            "%s does not fit this model: %d differences\n%s" % (path, len(self.rows), "\n".join(lines)),
            "Nothing was loaded.",
            "Build the model as it was, or load the weights on purpose by hand.",
        )


class ConfigChanged(CheckpointError):
    """The configuration differs from the one that the checkpoint was made with. ``rows``: (name, then, now)."""

    def __init__(self, rows: Sequence[Tuple[str, str, str]]) -> None:
        self.rows = list(rows)
        lines = ["  %s: %s, now %s" % row for row in self.rows]
        names = ", ".join(repr(row[0]) for row in self.rows)
        super().__init__(
            "the configuration changed since the checkpoint was made:\n%s" % "\n".join(lines),
            "Nothing was loaded.",
            "Put it back, or say that you mean it: resume(allow_changed=[%s])." % names,
        )


def _amount(n: int, unit: str) -> str:
    if unit != "bytes":
        return "%d %s" % (n, unit)
    value = float(n)
    for word in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or word == "TB":
            return "%d B" % n if word == "B" else "%.1f %s (%d bytes)" % (value, word, n)
        value /= 1000
    return str(n)
