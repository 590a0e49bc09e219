"""Plain text: it decodes, and holds no zero bytes, which is what a crash of the file system leaves in it."""

import codecs

from outlive.artifacts.findings import PARSE_IN_C, Layout, Source


def inspect_text(source: Source, layout: Layout) -> None:
    """Check a text that a program wrote on purpose (yaml, source, notes)."""
    _inspect(source, layout, strict=True)


def inspect_log(source: Source, layout: Layout) -> None:
    """Check a log. What the payload printed is its own affair: odd bytes lower the level and refute nothing."""
    _inspect(source, layout, strict=False)


def _inspect(source: Source, layout: Layout, strict: bool) -> None:
    f = source.f
    f.seek(0)
    start = f.read(2)
    wide = start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    decoder = codecs.getincrementaldecoder("utf-16" if wide else "utf-8")()
    f.seek(0)
    position = 0
    while True:
        block = f.read(1 << 20)
        layout.spend(len(block), PARSE_IN_C)
        zero = -1 if wide else block.find(b"\0")
        if zero >= 0:
            code = "corrupt" if strict else "unknown_type"
            layout.find(code, "zero byte at %d of a text" % (position + zero))
            return
        try:
            decoder.decode(block, not block)
        except UnicodeDecodeError as err:
            if not block and strict:
                layout.find("truncated", "text ends inside a character")
            elif block:
                # Other encodings (GBK, Latin-1) are legal and cannot be told from damage.
                layout.find("unknown_type", "text is not UTF-8: %s" % err.reason)
            return
        if not block:
            return
        position += len(block)
