"""What may be in a checkpoint, and what is named before anything is written."""

import collections
import enum

import pytest
import torch

from outlive.checkpoints.torch import NotPlain
from outlive.checkpoints.torch.plain import plain, shaped_like


class Color(enum.IntEnum):
    RED = 1


def test_values_become_plain():
    import numpy

    given = {
        "ordered": collections.OrderedDict(a=1),
        "count": collections.Counter("aab"),
        "queue": collections.deque([1, 2]),
        "set": {3, 1},
        "enum": Color.RED,
        "number": numpy.float64(0.5),
        "array": numpy.arange(3),
        "size": torch.Size([2, 3]),
        "dtype": torch.bfloat16,
    }
    found = plain(given, "extra")
    assert found["ordered"] == {"a": 1} and type(found["ordered"]) is dict
    assert found["count"] == {"a": 2, "b": 1} and type(found["count"]) is dict
    assert (found["queue"], found["set"], found["size"], found["dtype"]) == ([1, 2], [1, 3], (2, 3), "torch.bfloat16")
    assert type(found["enum"]) is int and type(found["number"]) is float
    assert torch.equal(found["array"], torch.arange(3))


@pytest.mark.parametrize("odd", [object(), lambda: 0, Color, open])
def test_anything_else_is_named_by_its_place(odd):
    with pytest.raises(NotPlain, match=r"extra\.deep\[1\]"):
        plain({"deep": [1, odd]}, "extra")


def test_containers_come_back_as_they_are_here():
    here = {"count": collections.Counter(), "queue": collections.deque(maxlen=2), "set": set(), "new": 1}
    found = shaped_like(here, {"count": {5: 1}, "queue": [1, 2], "set": [1, 3], "other": {"a": 1}})
    assert (
        found["count"][7] == 0 and found["queue"].maxlen == 2 and found["set"] == {1, 3} and found["other"] == {"a": 1}
    )
