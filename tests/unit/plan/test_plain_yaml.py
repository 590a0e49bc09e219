"""The reader of requests against PyYAML, and what it refuses."""

import pytest
import yaml

from outlive.errors import BadConfig
from outlive.plan.plain_yaml import loads

REQUEST = """# a request
version: 1
id: "d0001"
model:
  name: "Llama-3-8B"   # the model
  params: 8030261248
  tied_embeddings: false
  note: 'it''s # not a comment'
hardware:
  gpu: a100-80gb-sxm
  memory_usable_gib: 79.2
training:
  lora: {rank: 8, targets: "q,v", trainable_params: 4194304}
  sizes: [1, 2.5, "three", null]
  micro_batch: null
  learning_rate: 3.0e-4
  empty: {}
parallelism:
  deep:
    deeper: true
"""


@pytest.mark.parametrize(
    "text",
    [
        REQUEST,
        "a: 1\n",
        "---\na: 1\n",
        "a:\n  b: -3\n  c: +4\n",
        'a: "x: y, {z}"\nb: plain text with spaces\n',
        "a: {b: {c: [1, [2, 3]]}, d: 'e, f'}\n",
        "a:\nb: ~\n",
        'a: "\\u00e9\\n"\n',
        "a: 1.\nb: .5\nc: 1.5e+3\n",
        '{"a": {"b": [1, true, null]}}',
        "a: http://x/y#z\n",
        "'quoted key': 1\n",
    ],
)
def test_it_reads_what_pyyaml_reads(text):
    assert loads(text) == yaml.safe_load(text)


def test_only_true_and_false_are_booleans():
    assert loads("a: no\nb: off\nc: true\n") == {"a": "no", "b": "off", "c": True}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\na: 2\n", 2),
        ("a: 1\n   b: 2\n", 2),
        ("a:\n\tb: 2\n", 2),
        ("a: &x 1\n", 1),
        ("a: !!str 1\n", 1),
        ("a: |\n  text\n", 1),
        ("a:\n  - 1\n", 2),
        ("just words\n", 1),
        ("a: {b: 1\n", 1),
        ("a: [1, 2\n", 1),
        ("a: [1 2] 3\n", 1),
        ("a: {b: 1, b: 2}\n", 1),
        ("a: b: c\n", 1),
        ('a: "open\n', 1),
        ("a: 'open\n", 1),
        ("", 1),
        ("  a: 1\nb: 2\n", 2),
        ('{"a": ', 1),
    ],
)
def test_what_is_not_understood_is_refused_by_its_line(text, line):
    with pytest.raises(BadConfig) as caught:
        loads(text, file="request.yaml")
    assert (caught.value.file, caught.value.line) == ("request.yaml", line)
