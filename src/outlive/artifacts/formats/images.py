"""Images: signature, the chain of blocks, and the end marker; checksums where the format has them (PNG)."""

import struct
import zlib

from outlive.artifacts.findings import Bad, Layout, Source

PNG = b"\x89PNG\r\n\x1a\n"
JPEG = b"\xff\xd8\xff"
GIF = (b"GIF87a", b"GIF89a")


def inspect_png(source: Source, layout: Layout) -> None:
    """Check every chunk and its CRC up to IEND."""
    position = len(PNG)
    if source.at(0, len(PNG)) != PNG:
        raise Bad("corrupt", "no PNG signature")
    while True:
        length, kind = struct.unpack(">I4s", source.at(position, 8))
        if position + 12 + length > source.size:
            raise Bad("truncated", "PNG ends inside a chunk")
        crc = zlib.crc32(kind)
        left = length
        source.f.seek(position + 8)
        while left:
            block = source.f.read(min(left, 1 << 20))
            if not block:
                raise Bad("truncated", "PNG ends inside a chunk")
            crc = zlib.crc32(block, crc)
            left -= len(block)
        if crc != int.from_bytes(source.f.read(4), "big"):
            raise Bad("corrupt", "PNG chunk at byte %d does not match its checksum" % position)
        if kind == b"IEND":
            return
        position += 12 + length
        layout.spend(length + 12)


def inspect_jpeg(source: Source, layout: Layout) -> None:
    """Check the segments up to the scan, and that the end marker is there."""
    if source.at(0, 3) != JPEG:
        raise Bad("corrupt", "no JPEG signature")
    position = 2
    while True:
        marker = source.at(position, 2)
        if marker[0] != 0xFF:
            raise Bad("corrupt", "JPEG without a marker at byte %d" % position)
        if marker[1] == 0xFF:  # fill byte
            position += 1
            continue
        if marker[1] == 0xD9:
            raise Bad("corrupt", "JPEG ends before its image")
        length = struct.unpack(">H", source.at(position + 2, 2))[0]
        if length < 2:
            raise Bad("corrupt", "JPEG with a damaged segment at byte %d" % position)
        position += 2 + length
        if marker[1] == 0xDA:
            break
        layout.spend(length)
    end = source.size
    while end > position:  # the marker is last or near it; some writers add bytes behind
        begin = max(position, end - (1 << 20))
        if b"\xff\xd9" in source.at(begin, end - begin):
            return
        end = begin + 1 if begin > position else position
    raise Bad("truncated", "JPEG without its end marker")


def inspect_gif(source: Source, layout: Layout) -> None:
    """Check the chain of blocks up to the trailer."""
    head = source.at(0, 13)
    if head[:6] not in GIF:
        raise Bad("corrupt", "no GIF signature")
    position = 13 + (3 << (head[10] & 7) + 1 if head[10] & 0x80 else 0)
    while True:
        kind = source.at(position, 1)
        if kind == b"\x3b":
            return
        if kind == b"\x21":
            position += 2
        elif kind == b"\x2c":
            flags = source.at(position, 10)[9]
            position += 11 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
        else:
            raise Bad("corrupt", "GIF with no block at byte %d" % position)
        while True:
            length = source.at(position, 1)[0]
            position += 1 + length
            layout.spend(1 + length, 16)
            if not length:
                break


def inspect_webp(source: Source, layout: Layout) -> None:
    """Check the chunks and that they fill the size the file announces."""
    head = source.at(0, 12)
    if head[:4] != b"RIFF" or head[8:] != b"WEBP":
        raise Bad("corrupt", "no WebP signature")
    end = 8 + int.from_bytes(head[4:8], "little")
    if end > source.size:
        raise Bad("truncated", "WebP announces %d bytes and has %d" % (end, source.size))
    position = 12
    while position < end:
        length = int.from_bytes(source.at(position, 8)[4:], "little")
        position += 8 + length + (length & 1)
        layout.spend(8, 16)
    if position > end + 1:
        raise Bad("corrupt", "WebP with a chunk beyond its end")
