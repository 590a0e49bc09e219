"""Our archives are what tar takes them for; every place in them is known beforehand, also in those tarfile wrote."""

import hashlib
import io
import os
import tarfile
from pathlib import Path
from typing import Any, Dict, List

from outlive.onbox import code
from outlive.onbox.archive import MANIFEST, header, layout, manifest_text, read_manifest, whole
from outlive.wire.names import BoxFiles

NAMES = ["a.py", "dir/" + "n" * 96, "x" * 99, "x" * 100, "x" * 101, "long/" * 60 + "end", "中文.py", "sp ace'\n"]
NAMES += [os.fsdecode(b"\xff\xfe"), "-rf", "empty"]


def project() -> "tuple[List[Dict[str, Any]], Dict[str, bytes]]":
    contents = {name: (name.encode("utf-8", "surrogateescape") + b"\n") * (n * 97) for n, name in enumerate(NAMES)}
    contents["empty"] = b""
    files: List[Dict[str, Any]] = [
        {
            "path": name,
            "mode": 0o755 if name == "a.py" else 0o644,
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "link": "",
        }
        for name, data in contents.items()
    ]
    files.append({"path": "lnk", "mode": 0o777, "bytes": 0, "sha256": "", "link": "dir/中"})
    return sorted(files, key=lambda f: f["path"]), contents


def written_by_tarfile(path: Path, files: List[Dict[str, Any]], contents: Dict[str, bytes]) -> None:
    """An archive as earlier versions made them."""
    text = manifest_text(files)
    with tarfile.open(str(path), "w:", format=tarfile.PAX_FORMAT) as tar:
        for name, mode, data in [(MANIFEST, 0o644, text)] + [(f["path"], f["mode"], f) for f in files]:
            info = tarfile.TarInfo(name)
            info.mode = mode
            if isinstance(data, dict) and data["link"]:
                info.type, info.linkname = tarfile.SYMTYPE, data["link"]
                tar.addfile(info)
                continue
            body = data if isinstance(data, bytes) else contents[name]
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))


def test_tar_reads_what_we_write(tmp_path: Path) -> None:
    files, contents = project()
    text = manifest_text(files)
    members = layout(files, len(text))
    data = bytearray()
    for member in members:
        assert len(data) == member.at
        data += member.head
        assert len(data) == member.data
        if not member.item:
            data += text
        elif member.size:
            data += contents[member.item["path"]]
        data += b"\0" * (member.end - len(data))
    data += b"\0" * (whole(members) - len(data))
    with tarfile.open(fileobj=io.BytesIO(bytes(data))) as tar:
        found = tar.getmembers()
        assert [m.name for m in found] == [MANIFEST] + [f["path"] for f in files]
        assert [m.mode for m in found[1:]] == [f["mode"] for f in files]
        for member, item in zip(found[1:], files):
            if item["link"]:
                assert member.issym() and member.linkname == item["link"]
            else:
                handle = tar.extractfile(member)
                assert handle is not None and handle.read() == contents[item["path"]]
    (tmp_path / "a.tar").write_bytes(bytes(data))
    assert read_manifest(str(tmp_path / "a.tar")) == text


def test_places_in_archives_of_earlier_versions(tmp_path: Path) -> None:
    files, contents = project()
    path = tmp_path / "old.tar"
    written_by_tarfile(path, files, contents)
    data, text = path.read_bytes(), read_manifest(str(path))
    assert text == manifest_text(files)
    members = layout(files, len(text))
    assert whole(members) == len(data)
    for member in members[1:]:
        assert data[member.data : member.data + member.size] == contents.get(member.item["path"], b"")


def test_what_a_box_knows_of_older_archives(tmp_path: Path) -> None:
    box = BoxFiles(str(tmp_path))
    files, contents = project()
    os.makedirs(box.code)
    written_by_tarfile(Path(box.snapshot("0" * 64)), files, contents)
    Path(box.snapshot("1" * 64)).write_bytes(b"no archive")
    Path(box.snapshot("2" * 64)).write_bytes(header(MANIFEST, 0o644, 999) + b"{")
    wanted = {f["sha256"] for f in files if f["sha256"]} | {"f" * 64}
    known = code._known(box, wanted)
    assert set(known) == wanted - {"f" * 64}
    for sha256, (archive, at) in known.items():
        size = max(f["bytes"] for f in files if f["sha256"] == sha256)
        assert hashlib.sha256(Path(archive).read_bytes()[at : at + size]).hexdigest() == sha256


def test_a_very_large_file_has_a_header_that_tar_understands() -> None:
    head = header("big", 0o644, 9 * 1024**3)
    info = tarfile.TarInfo.frombuf(head[-512:], "utf-8", "surrogateescape")
    assert len(head) % 512 == 0 and info.name == "big"
    small = tarfile.TarInfo.frombuf(header("big", 0o755, 8**11 - 1), "utf-8", "surrogateescape")
    assert (small.size, small.mode) == (8**11 - 1, 0o755)
