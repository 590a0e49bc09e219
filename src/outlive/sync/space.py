"""Enough room, asked before the first byte."""

from __future__ import annotations

from outlive import errors

SLACK_BYTES = 1024 * 1024
"""Directories, journals and what others write meanwhile."""
SLACK_INODES = 16


def gate(
    where: str,
    *,
    bytes_needed: int,
    bytes_free: int | None,
    inodes_needed: int,
    inodes_free: int | None,
    what: str,
) -> None:
    """Raise NoSpace, with the numbers, when ``what`` does not fit. Unknown room is no reason to refuse."""
    bytes_needed += SLACK_BYTES
    inodes_needed += SLACK_INODES
    short_bytes = bytes_free is not None and bytes_needed > bytes_free
    short_inodes = inodes_free is not None and inodes_needed > inodes_free
    if not (short_bytes or short_inodes):
        return
    told = []
    if short_bytes and bytes_free is not None:
        told.append(f"{bytes_needed / 1e6:.1f} MB needed, {bytes_free / 1e6:.1f} MB free")
    if short_inodes and inodes_free is not None:
        told.append(f"{inodes_needed} inodes needed, {inodes_free} free")
    raise errors.NoSpace(
        f"{what} does not fit on {where}: {'; '.join(told)}",
        path=where,
        bytes_needed=bytes_needed,
        bytes_free=bytes_free,
        inodes_needed=inodes_needed,
        inodes_free=inodes_free,
        safe="Nothing was sent or changed.",
    )
