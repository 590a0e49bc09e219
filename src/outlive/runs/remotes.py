"""Does an rclone remote of a box lead back to that box? Asked of rclone's own settings, without their secrets."""

from __future__ import annotations

import re

from outlive import errors
from outlive.runs.place import Place

FAR = frozenset(
    "azureblob azurefiles b2 box drive dropbox ftp gcs googlecloudstorage http hidrive internetarchive jottacloud "
    "koofr mailru mega onedrive opendrive pcloud pikpak premiumizeme protondrive putio qingstor quatrix s3 seafile "
    "sftp sharefile "
    "smb storj sugarsync swift uptobox webdav yandex zoho".split()
)
"""Kinds of rclone remotes that are another machine, unless their address is this one."""
WRAPPERS = frozenset({"alias", "chunker", "compress", "crypt", "hasher", "cache"})
NEAR = re.compile(r"localhost|127\.\d+\.\d+\.\d+|::1|0\.0\.0\.0|ip6-localhost")

_ASK = (
    'rclone config show "$1" 2>/dev/null | sed -n '
    "-e 's/^\\(type\\|remote\\|host\\|endpoint\\) *= */\\1=/p' "
    "-e 's/^url *= *[a-z]*:\\/\\/\\([^@\\/]*@\\)\\{0,1\\}/url=/p'"
)


def leads_to_box(place: Place, remote: str, depth: int = 4) -> bool | None:
    """Return whether ``remote:path`` is the box's own disk. None: nobody can say."""
    name, colon, _ = remote.partition(":")
    if not colon or remote.startswith(":local") or remote.startswith("/"):
        return True
    if not name or "," in name:
        return None
    try:
        done = place.agent.exec.run(["sh", "-c", _ASK, "ask", name], timeout_s=30.0)
    except errors.OutliveError:
        return None
    found: dict[str, str] = {}
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        key, _, value = line.partition("=")
        found.setdefault(key, value.strip())
    kind = found.get("type", "")
    if kind == "local":
        return True
    if kind in WRAPPERS and depth > 0 and found.get("remote"):
        return leads_to_box(place, found["remote"], depth - 1)
    if kind not in FAR:
        return None
    address = found.get("host") or found.get("url") or found.get("endpoint") or ""
    host = re.sub(r"^[a-z0-9+]*://", "", address).strip("/").split("/")[0]
    host = host[1:].split("]")[0] if host.startswith("[") else host.split(":")[0]
    own = {str(place.box.facts.get("hostname") or "").lower()} - {""}
    return bool(NEAR.fullmatch(host)) or host.lower() in own
