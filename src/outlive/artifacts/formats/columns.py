"""Parquet and HDF5: as far as their outer frame goes."""

from outlive.artifacts.findings import Bad, Layout, Source

PARQUET = b"PAR1"
PARQUET_ENCRYPTED = b"PARE"
HDF5 = b"\x89HDF\r\n\x1a\n"


def inspect_parquet(source: Source, layout: Layout) -> None:
    """Check the magic at both ends and that the footer lies between them."""
    head = source.at(0, 4)
    if head not in (PARQUET, PARQUET_ENCRYPTED):
        raise Bad("corrupt", "no parquet signature")
    if source.size < 12:
        raise Bad("truncated", "parquet of %d bytes has no footer" % source.size)
    tail = source.at(source.size - 8, 8)
    if tail[4:] == PARQUET_ENCRYPTED:
        raise Bad("encrypted", "parquet with an encrypted footer")
    if tail[4:] != PARQUET:
        raise Bad("truncated", "parquet without its footer, which is written last")
    footer_bytes = int.from_bytes(tail[:4], "little")
    if not 0 < footer_bytes <= source.size - 12:
        raise Bad("corrupt", "parquet footer of %d bytes in a file of %d" % (footer_bytes, source.size))


def inspect_hdf5(source: Source, layout: Layout) -> None:
    """Compare the end that the superblock announces with the file; more needs the HDF5 library."""
    layout.find("unknown_type", "HDF5 is checked for its length only")
    head = source.at(0, min(source.size, 128))
    version = head[8] if len(head) > 13 else 255
    if version in (0, 1):
        width, at = head[13], (24 if version == 0 else 28)
    elif version in (2, 3):
        width, at = head[9], 12
    else:
        return
    # base address, then: free-space (0, 1) or extension (2, 3), then the end of the file
    end = int.from_bytes(head[at + 2 * width : at + 3 * width], "little")
    if width in (4, 8) and at + 3 * width <= len(head) and end > source.size:
        raise Bad("truncated", "HDF5 ends at byte %d, its superblock says %d" % (source.size, end))
