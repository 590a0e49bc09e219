"""Framed messages over a byte stream: how the client calls the box and what comes back.

A frame is one line of JSON, then as many raw bytes as its ``"n"`` says (none without it). A reply
begins with a marker line that carries the caller's nonce, because login scripts print whatever they
like before it, and ends with ``{"t":"end"}``; a stream without an end was cut.
"""

import json
import zlib
from typing import IO, Any, Callable, Dict, Iterator, Optional, Tuple

MARK = b"outlive-reply "
MAX_HEADER_BYTES = 64 * 1024 * 1024
CHUNK_BYTES = 256 * 1024
MAX_INFLATED_BYTES = 4 * 1024 * 1024
"""What a compressed payload may become: a reader's memory is not the sender's to choose."""


class Torn(Exception):
    """The stream ended or turned to garbage before its end frame."""


def write_mark(out: IO[bytes], nonce: str) -> None:
    """Write the line that separates our reply from whatever a login script printed."""
    out.write(b"\n" + MARK + nonce.encode("ascii") + b"\n")


def write_frame(out: IO[bytes], header: Dict[str, Any], payload: bytes = b"") -> None:
    """Write one frame. ``header`` must not contain ``n``; it is set from the payload's length."""
    if payload:
        header = dict(header, n=len(payload))
    out.write(json.dumps(header, separators=(",", ":")).encode("ascii") + b"\n")
    if payload:
        out.write(payload)


def write_end(out: IO[bytes]) -> None:
    write_frame(out, {"t": "end"})
    out.flush()


def skip_to_mark(source: IO[bytes], nonce: str, limit_bytes: int = 1 << 20) -> bytes:
    """Read past noise up to our marker and return the noise. Raises Torn when there is no marker."""
    want = MARK + nonce.encode("ascii") + b"\n"
    noise = b""
    while len(noise) <= limit_bytes:
        line = source.readline(65536)
        if not line:
            raise Torn("no reply; the other end said: %r" % noise[-300:].decode("utf-8", "replace"))
        if line == want:
            return noise
        noise += line
    raise Torn("no reply within %d bytes of other output" % limit_bytes)


def read_header(source: IO[bytes]) -> Dict[str, Any]:
    """Return the next frame's header. Raises Torn."""
    line = source.readline(MAX_HEADER_BYTES)
    if not line.endswith(b"\n"):
        raise Torn("cut inside a frame's header")
    try:
        header = json.loads(line.decode("ascii"))
    except ValueError:
        raise Torn("not a frame: %r" % line[:80])
    if not isinstance(header, dict):
        raise Torn("not a frame: %r" % line[:80])
    return header


def read_payload(source: IO[bytes], n: int) -> bytes:
    """Return exactly ``n`` bytes. Raises Torn."""
    parts = []
    left = n
    while left:
        part = source.read(min(left, CHUNK_BYTES))
        if not part:
            raise Torn("cut %d bytes before the end of a frame" % left)
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def deflated(payload: bytes) -> bytes:
    """Return a payload as it travels in a frame whose header has ``z``, the length before."""
    return zlib.compress(payload, 1)


def inflated(payload: bytes, n: int) -> bytes:
    """Return the ``n`` bytes that a compressed payload stands for. Raises Torn when it does not."""
    if not 0 <= n <= MAX_INFLATED_BYTES:
        raise Torn("a frame that claims to unpack to %d bytes" % n)
    unpack = zlib.decompressobj()
    try:
        data = unpack.decompress(payload, n + 1)
    except zlib.error as error:
        raise Torn("a frame that does not unpack: %s" % error)
    if len(data) != n or not unpack.eof:
        raise Torn("a frame that unpacks to another length than it says")
    return data


def read_frames(
    source: IO[bytes], on_bytes: Optional[Callable[[int], None]] = None
) -> Iterator[Tuple[Dict[str, Any], bytes]]:
    """Yield ``(header, payload)`` up to the end frame. Raises Torn when it never comes.

    A payload that travelled compressed is yielded as it was before.
    """
    while True:
        header = read_header(source)
        if header.get("t") == "end":
            return
        payload = read_payload(source, int(header.get("n", 0)))
        if on_bytes is not None:
            on_bytes(len(payload))
        if "z" in header:
            payload = inflated(payload, int(header["z"]))
        yield header, payload
