"""CSV and TSV: every row as wide as the first."""

import csv
import io
from typing import Iterator, List

from outlive.artifacts.findings import PARSE_IN_C, Bad, Layout, Source

MAX_FIELD_CHARS = 16 << 20


def inspect_csv(source: Source, layout: Layout) -> None:
    """Check a comma separated table; a first line with semicolons or tabs and no comma decides otherwise."""
    first = source.at(0, min(source.size, 1 << 16)).split(b"\n", 1)[0]
    counts = {d: first.count(d) for d in (b",", b";", b"\t")}
    delimiter = b"," if counts[b","] else max(counts, key=lambda d: counts[d])
    _inspect(source, layout, (delimiter if counts[delimiter] else b",").decode())


def inspect_tsv(source: Source, layout: Layout) -> None:
    """Check a tab separated table."""
    _inspect(source, layout, "\t")


def _inspect(source: Source, layout: Layout, delimiter: str) -> None:
    source.f.seek(max(source.size - 1, 0))
    complete = source.f.read(1) == b"\n"
    source.f.seek(0)
    text = io.TextIOWrapper(source.f, encoding="utf-8-sig", newline="")
    # The limit belongs to the process, so it is put back; one check runs at a time in its child.
    before = csv.field_size_limit(MAX_FIELD_CHARS)
    try:
        width = rows = odd = last_odd = last_width = 0
        shown: List[str] = []
        for row in csv.reader(_lines(text, layout), delimiter=delimiter):
            if not row or (not width and row[0].startswith("#")):
                continue
            rows += 1
            width = width or len(row)
            if len(row) != width:
                odd += 1
                last_odd, last_width = rows, len(row)
                if odd <= 5:
                    shown.append(str(rows))
    except UnicodeDecodeError as err:
        layout.find("unknown_type", "table is not UTF-8: %s" % err.reason)
        return
    except csv.Error as err:
        if "field limit" in str(err):
            raise Bad("over_budget", "table with a field too long to hold")
        raise Bad("corrupt", "table: %s" % err)
    finally:
        csv.field_size_limit(before)
        text.detach()  # or the wrapper would close the file with itself
    if last_odd == rows and odd and not complete and last_width < width:
        layout.find("truncated", "row %d, the last, is torn: %d of %d fields" % (rows, last_width, width))
        odd -= 1
    if odd:
        code = "corrupt" if 2 * odd > rows else "bad_lines"
        layout.find(code, "%d of %d rows are not %d wide: row %s" % (odd, rows, width, ", ".join(shown[:odd])))


def _lines(text: io.TextIOWrapper, layout: Layout) -> Iterator[str]:
    while True:
        line = text.readline(MAX_FIELD_CHARS)
        if not line:
            return
        if len(line) == MAX_FIELD_CHARS:
            raise Bad("over_budget", "table with a line too long to hold")
        if "\0" in line:
            raise Bad("corrupt", "table with NUL bytes")
        layout.spend(len(line), PARSE_IN_C)
        yield line
