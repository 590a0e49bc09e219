"""Is this copy safe? One answer per copy, from the verb and the platform's facts."""

import posixpath

from outlive.gate.claims import BoxClaims, RunClaims, SafePlace, within
from outlive.wire.values import READ_BACK, Copy

SAFE = ""
"""The answer for what counts."""


def why_place_unsafe(place: SafePlace, claims: BoxClaims) -> str:
    """Return why the verb could take this place away, or ``""`` when it cannot."""
    if place.kind == "rclone":
        if place.on_box is None:
            return "nobody looked whether the remote leads back to the box"
        return "the remote leads back to the box's own disk" if place.on_box else SAFE
    if place.kind not in ("here", "mount"):
        return "this kind of place is not known"
    if not place.path.startswith("/"):
        return "its path is not absolute"
    if place.on_box:
        return "it is the box's own disk"
    return _why_path_unsafe(place.kind, place.path, claims)


def _why_path_unsafe(kind: str, path: str, claims: BoxClaims) -> str:
    verb = claims.verb or claims.action
    if claims.same_machine:
        # A `local:` box: all of it is this machine, and its own disk means its root directory.
        tier = claims.tier_of(path)
        if not claims.root_dir:
            return "the box is this machine and its root directory is not known"
        if within(path, claims.root_dir):
            return "it is inside the box's own root directory"
        return f"{verb} deletes it" if tier is not None and tier.survives is False else SAFE
    if kind == "here":
        return SAFE
    tier = claims.tier_of(path)
    if tier is None:
        return "no storage tier of the platform answers for it"
    if tier.own_disk:
        return "it is the box's own disk"
    if tier.survives is not True:
        return f"{verb} {'deletes' if tier.survives is False else 'may delete'} it"
    return SAFE if tier.survives_destroy is True else "it does not survive the box"


def judge_places(claims: BoxClaims) -> dict[str, tuple[SafePlace, str]]:
    """Return every described place by name with ``why_place_unsafe``'s answer."""
    return {p.name: (p, why_place_unsafe(p, claims)) for p in claims.places}


def why_copy_unsafe(copy: Copy, places: dict[str, tuple[SafePlace, str]], claims: BoxClaims) -> str:
    """Return why this copy does not count, or ``""`` when it does. The digest is the caller's to compare.

    ``places`` is ``judge_places``'s answer.
    """
    if copy.place not in places:
        return "the place is not described"
    place, why = places[copy.place]
    if why:
        return why
    if place.kind in ("here", "mount"):
        # The place may hold another tier, or the box's root directory, further down.
        why = _why_path_unsafe(place.kind, posixpath.join(place.path, copy.path), claims)
        if why:
            return why
    if copy.read_back not in READ_BACK:
        return "it was never read back"
    if place.storage != "local" and copy.read_back == "cache":
        return "it was read back from a cache, which proves nothing there"
    return SAFE


class CopyIndex:
    """The copies of one run, judged once, so that a roster of many thousand files stays quick."""

    def __init__(self, run: RunClaims, claims: BoxClaims) -> None:
        places = judge_places(claims)
        standing: dict[tuple[str, str], Copy] = {}
        self._overwritten: dict[str, Copy] = {}
        for copy in run.copies:
            before = standing.get((copy.place, copy.path))
            if before is not None and before.sha256 != copy.sha256:
                self._overwritten[before.sha256] = before
            standing[(copy.place, copy.path)] = copy
        self._by_digest: dict[str, list[tuple[Copy, str]]] = {}
        self._by_path: dict[str, Copy] = {}
        for copy in standing.values():
            self._by_digest.setdefault(copy.sha256, []).append((copy, why_copy_unsafe(copy, places, claims)))
            self._by_path[copy.path] = copy

    def safe(self, sha256: str) -> tuple[Copy, ...]:
        """Return the copies of a digest that stand, that were read back, and that the verb cannot take away."""
        return tuple(copy for copy, why in self._by_digest.get(sha256, ()) if not why) if sha256 else ()

    def last_known(self, path: str, sha256: str) -> str:
        """Return a few words about the nearest thing to a copy of this file; ``""`` when there is none."""
        for copy, why in reversed(self._by_digest.get(sha256, ()) if sha256 else ()):
            return f"{copy.place} ({why or 'safe'})"
        if sha256 in self._overwritten:
            return f"{self._overwritten[sha256].place} (written over since)"
        return f"{self._by_path[path].place} (other content)" if path in self._by_path else ""
