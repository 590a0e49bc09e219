"""``poll``: everything a watcher wants, in one round trip, by offsets."""

import os
from typing import IO, Any, Dict, Optional

from outlive.onbox.status import machine_of, status
from outlive.wire import WIRE_MAJOR, WIRE_MINOR
from outlive.wire.clock import boot_s, wall_s
from outlive.wire.frames import write_frame
from outlive.wire.names import BoxFiles, RunFiles

PARTS = {"journal": "journal", "metrics": "metrics", "samples": "samples", "log": "log"}
LIMIT_BYTES = 4 << 20


def poll(box: BoxFiles, request: Dict[str, Any], out: IO[bytes]) -> None:
    """Write a ``box`` frame, then per run a ``run`` frame and the parts asked for.

    ``request["runs"]``: ``{run id: {part: offset}}`` or None for the status of all. A negative offset means
    "that many bytes from the end". A part's frame says ``from`` and ``to``; what lies in a ``gap`` was freed
    by the log's cap. With ``mark`` a last frame says how this answer can be had again, where it can (``onbox.mark``).
    """
    machine = machine_of(box)
    with open(box.box_id) as text:
        box_id = text.read().strip()
    head = {
        "t": "box",
        "box_id": box_id,
        "machine": machine,
        "boot_s": boot_s(),
        "wall_s": wall_s(),
        "nonce": request.get("nonce", ""),
        "wire": [WIRE_MAJOR, WIRE_MINOR],
        "host": os.uname().nodename,
    }
    head.update(space(box.dir))
    if os.path.exists(box.lease):
        from outlive.onbox import boxlease

        boxlease.ensure(box, request.get("payload"))
        head["lease"] = boxlease.read(box)
    write_frame(out, head)
    wanted = request.get("runs")
    runs = box.run_ids() if wanted is None else sorted(wanted)
    marker = None
    if request.get("mark"):
        from outlive.onbox.mark import Marker

        marker = Marker(box, runs)
    statuses = []
    for run_id in runs:
        run = box.run(run_id)
        if not os.path.exists(run.spec):
            write_frame(out, {"t": "run", "run": run_id, "absent": True})
            continue
        statuses.append(status(box, run, machine))
        write_frame(out, {"t": "run", "run": run_id, "status": statuses[-1]})
        for part, offset in sorted((wanted or {}).get(run_id, {}).items()):
            if part in PARTS:
                _part(run, part, int(offset), out, int(request.get("limit_bytes", LIMIT_BYTES)))
    mark = marker.mark(statuses) if marker is not None else None
    if mark is not None:
        write_frame(out, mark)


def space(path: str) -> Dict[str, Optional[int]]:
    """Return what ``probes.disk`` says of room and inodes, without importing what else it knows."""
    names = ("disk_free_bytes", "disk_free_inodes", "disk_total_bytes", "disk_total_inodes")
    try:
        found = os.statvfs(path)
    except OSError:
        return dict.fromkeys(names)
    unit = found.f_frsize or found.f_bsize
    room = (found.f_bavail * unit, found.f_blocks * unit) if found.f_blocks else (None, None)
    inodes = (min(found.f_favail, found.f_ffree), found.f_files) if found.f_files else (None, None)
    return dict(zip(names, (room[0], inodes[0], room[1], inodes[1])))


def _part(run: RunFiles, part: str, offset: int, out: IO[bytes], limit_bytes: int) -> None:
    path = getattr(run, PARTS[part])
    try:
        handle = open(path, "rb")
    except FileNotFoundError:
        return
    with handle:
        size = os.fstat(handle.fileno()).st_size
        start = max(0, size + offset) if offset < 0 else min(offset, size)
        handle.seek(start)
        data = handle.read(min(limit_bytes, size - start))
    write_frame(out, {"t": part, "run": run.id, "from": start, "to": start + len(data), "size": size}, data)
