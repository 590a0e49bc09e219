"""The block that the packed program finds its modules in."""

import zlib

import pytest

from outlive.onbox import boot


def _block(sources):
    head = " ".join("%s %d" % (path, len(data)) for path, data in sources.items())
    return zlib.compress(head.encode() + b"\n" + b"".join(sources.values()))


class Archive:
    archive = "/somewhere/x.pyz"

    def __init__(self, sources):
        self.files = {boot.BLOCK: _block(sources), "data.json": b"{}"}

    def get_data(self, path):
        return self.files[path]


SOURCES = {
    "top/__init__.py": b"",
    "top/big.py": b"\n".join(b"x%d = %d" % (n, n * 7919 % 1000003) for n in range(5000)),
    "top/says.py": b"where = __file__\nname = __name__\n",
}


def _load(block, name):
    spec = block.find_spec(name)
    module = type(boot)(name)
    module.__spec__, module.__file__ = spec, spec.origin
    block.exec_module(module)
    return module


@pytest.mark.parametrize("order", [("top.says", "top.big", "top"), ("top", "top.big", "top.says")])
def test_modules_come_in_any_order_and_more_than_once(order):
    block = boot.Block(Archive(SOURCES))
    for name in order + order:
        module = _load(block, name)
        assert module.__file__.startswith("/somewhere/x.pyz/top/")
        if name == "top.big":
            assert module.x4999 == 4999 * 7919 % 1000003
        assert block.get_source(name).encode() == SOURCES[module.__file__[len("/somewhere/x.pyz/") :]]


def test_a_package_is_one_and_strangers_are_left_to_others():
    block = boot.Block(Archive(SOURCES))
    assert block.is_package("top") and not block.is_package("top.big")
    assert block.find_spec("top").submodule_search_locations == ["/somewhere/x.pyz/top"]
    assert block.find_spec("top.big").submodule_search_locations is None
    assert block.find_spec("json") is None and block.find_spec("top.other") is None
    assert block.get_source("json") is None
    assert block.get_data("data.json") == b"{}"


def test_nothing_is_unpacked_that_nobody_asked_for():
    block = boot.Block(Archive(SOURCES))
    _load(block, "top")
    flow = boot.unpacked(block.packed)
    assert next(flow).split()[::2] == [path.encode() for path in SOURCES]
    assert not block._waiting
    _load(block, "top.says")
    assert set(block._waiting) == {"top/big.py"}, "it lay on the way"
