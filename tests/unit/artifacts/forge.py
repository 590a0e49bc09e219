"""Small valid files of every kind, written with the standard library alone (it must run on Python 3.8)."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import struct
import tarfile
import zipfile
import zlib

from outlive.artifacts.formats.tfevents import masked

STORAGE_OF = {"f4": "FloatStorage", "f8": "DoubleStorage", "bf2": "BFloat16Storage", "i8": "LongStorage"}
ITEM = {"f4": 4, "f8": 8, "bf2": 2, "i8": 8}


def floats(*values):
    return struct.pack("<%df" % len(values), *values)


def _text(word):
    raw = word.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def _int(n):
    return b"J" + struct.pack("<i", n)


def _tensor(key, kind, items, offset, shape, stride):
    """Opcodes (protocol 2) of one call of torch._utils._rebuild_tensor_v2."""
    pid = b"(" + _text("storage") + b"ctorch\n" + STORAGE_OF[kind].encode() + b"\n" + _text(key) + _text("cpu")
    pid += _int(items) + b"tQ"
    numbers = b"".join(b"(" + b"".join(_int(n) for n in part) + b"t" for part in (shape, stride))
    hooks = b"ccollections\nOrderedDict\n)R"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + pid + _int(offset) + numbers + b"\x89" + hooks + b"tR"


def torch_pickle(tensors, extra=b""):
    """``tensors``: name -> (key, kind, items in storage, offset, shape, stride)."""
    body = b"".join(_text(name) + _tensor(*spec) for name, spec in tensors.items())
    return b"\x80\x02}(" + body + extra + b"u."


def torch_zip(tensors=None, storages=None, extra=b"", compression=zipfile.ZIP_STORED, pickled=None):
    """A file like torch.save's. ``storages``: key -> bytes."""
    if tensors is None:
        tensors = {"w": ("0", "f4", 6, 0, (2, 3), (3, 1)), "n": ("1", "i8", 2, 0, (2,), (1,))}
        storages = {"0": floats(1, -2, 3.5, 0, 1e30, -1e-30), "1": struct.pack("<2q", 7, -1)}
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", compression) as archive:
        archive.writestr("m/data.pkl", torch_pickle(tensors, extra) if pickled is None else pickled)
        archive.writestr("m/byteorder", b"little")
        for key, data in storages.items():
            archive.writestr("m/data/" + key, data)
        archive.writestr("m/version", b"3\n")
    return held.getvalue()


def torch_legacy(values=(1.0, 2.0, 3.0)):
    head = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2) + pickle.dumps({"little_endian": True}, 2)
    body = torch_pickle({"w": ("94", "f4", len(values), 0, (len(values),), (1,))})
    # Here a persistent id has a sixth part, the view of the storage.
    body = body.replace(_int(len(values)) + b"tQ", _int(len(values)) + b"NtQ")
    return head + body + pickle.dumps(["94"], 2) + struct.pack("<q", len(values)) + floats(*values)


def safetensors(tensors=None, header=None, tail=b""):
    """``tensors``: name -> (dtype, shape, bytes)."""
    if tensors is None:
        tensors = {"a": ("F32", [2, 2], floats(1, 2, 3, 4)), "b": ("I64", [1], struct.pack("<q", 5))}
    fields, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, shape, raw) in tensors.items():
        fields[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(fields if header is None else header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data + tail


def npy(raw=None, descr="<f4", shape=(4,)):
    raw = floats(1, 2, 3, 4) if raw is None else raw
    header = "{'descr': %r, 'fortran_order': False, 'shape': %r, }" % (descr, shape)
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + raw


def npz(arrays=None, compression=zipfile.ZIP_STORED):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", compression) as archive:
        for name, raw in (arrays or {"x": npy(), "y": npy(descr="<i4")}).items():
            archive.writestr(name + ".npy", raw)
    return held.getvalue()


def zipped(files=None, compression=zipfile.ZIP_DEFLATED):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", compression) as archive:
        for name, raw in (files or {"a.txt": b"hello " * 500, "dir/b.bin": bytes(range(256)) * 8}).items():
            archive.writestr(name, raw)
    return held.getvalue()


def tar(packing=""):
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:" + packing) as archive:
        for name, raw in (("a.txt", b"hello\n" * 300), ("d/" + "long" * 60, b"x" * 700), ("é", b"")):
            member = tarfile.TarInfo(name)
            member.size = len(raw)
            archive.addfile(member, io.BytesIO(raw))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "a.txt"
        archive.addfile(link)
    return held.getvalue()


def tfevents(records=(b"\x09first", b"second" * 100, b"third" * 9000)):
    out = b""
    for record in records:
        length = struct.pack("<Q", len(record))
        out += length + struct.pack("<I", masked(length)) + record + struct.pack("<I", masked(record))
    return out


def png():
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    pixels = zlib.compress(b"\0\xff\0\0" * 2)
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 2, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def gif():
    table = b"\0\0\0\xff\xff\xff"
    image = b"\x2c" + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x4c\x01\x00"
    return b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0x80, 0, 0) + table + b"\x21\xf9\x04\0\0\0\0\0" + image + b"\x3b"


def jpeg():
    app = b"\xff\xe0" + struct.pack(">H", 16) + b"JFIF\0\1\1\0\0\1\0\1\0\0"
    scan = b"\xff\xda" + struct.pack(">H", 8) + b"\1\1\0\0\x3f\0" + b"\x12\x34\x56" * 30
    return b"\xff\xd8" + app + scan + b"\xff\xd9"


def webp():
    body = b"WEBP" + b"VP8L" + struct.pack("<I", 5) + b"\x2f\0\0\0\0" + b"\0"
    return b"RIFF" + struct.pack("<I", len(body)) + body


def parquet():
    return b"PAR1" + b"column data" * 10 + b"footer" * 4 + struct.pack("<I", 24) + b"PAR1"


def hdf5(end=2048):
    head = b"\x89HDF\r\n\x1a\n" + bytes([2, 8, 8, 0]) + struct.pack("<QQQQ", 0, 2**64 - 1, end, 48)
    return head + b"\0" * (2048 - len(head))


JSON = json.dumps({"loss": [1.5, 2, -3e-7], "name": 'é"\\\n', "deep": {"a": [None, True, {}]}}).encode()
JSONL = b"".join(json.dumps({"step": n, "loss": 1.0 / (n + 1)}).encode() + b"\n" for n in range(30))
CSV = b'step,loss,note\n1,0.5,"a, b"\n2,0.25,"two\nlines"\n'


def every_kind():
    """Return file name -> (kind, bytes of a whole file)."""
    return {
        "m.pt": ("torch-zip", torch_zip()),
        "packed.pt": ("torch-zip", torch_zip(compression=zipfile.ZIP_DEFLATED)),
        "old.pth": ("torch-legacy", torch_legacy()),
        "state.pkl": ("pickle", pickle.dumps({"a": [1, 2.5, "x"], "b": (None, b"y" * 100)}, 4)),
        "m.safetensors": ("safetensors", safetensors()),
        "x.npy": ("npy", npy()),
        "x.npz": ("npz", npz()),
        "packed.npz": ("npz", npz(compression=zipfile.ZIP_DEFLATED)),
        "r.json": ("json", JSON),
        "r.jsonl": ("jsonl", JSONL),
        "t.csv": ("csv", CSV),
        "t.tsv": ("tsv", b"a\tb\n1\t2\n"),
        "t.parquet": ("parquet", parquet()),
        "a.zip": ("zip", zipped()),
        "a.tar": ("tar", tar()),
        "a.tar.gz": ("tar.gz", tar("gz")),
        "a.tgz": ("tar.gz", tar("gz")),
        "a.tar.bz2": ("tar.bz2", tar("bz2")),
        "a.tar.xz": ("tar.xz", tar("xz")),
        "a.gz": ("gz", gzip.compress(b"data" * 999)),
        "a.bz2": ("bz2", bz2.compress(b"data" * 999)),
        "a.xz": ("xz", lzma.compress(b"data" * 999)),
        "events.out.tfevents.1.host": ("tfevents", tfevents()),
        "p.png": ("png", png()),
        "p.jpg": ("jpeg", jpeg()),
        "p.gif": ("gif", gif()),
        "p.webp": ("webp", webp()),
        "conf.yaml": ("yaml", b"lr: 0.1\nname: \xe6\xa8\xa1\xe5\x9e\x8b\n"),
        "notes.md": ("text", "# Notes é\n".encode()),
        "run.log": ("log", b"step 1\rstep 2\n\x1b[0m"),
    }
