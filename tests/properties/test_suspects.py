"""The cheap question about secrets clears nothing in which the exact test finds something."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from outlive.sync.cautions import _searched
from outlive.sync.suspects import may_hold_secret

PREFIXES = "hf gho ghp ghs ghu ghr npm pypi r8 nvapi sk pk rk glpat dckr_pat rpa lin_api".split()
LONG = "aB3dE5gH7jK9mN1pQ3rS5tU7vW9xY1zA2"
SPACES = [" ", "\t", "\n", "\x1c", "\x1f", "\x85", "\u00a0", "\u2003", "\u3000", "\u2028"]
TOKENS = [
    *(f"{prefix}{mark}{LONG[:16]}" for prefix in PREFIXES for mark in "_-"),
    "github_pat_" + LONG[:16],
    "-----BEGIN RSA PRIVATE KEY-----",
    "xoxb-1234567890ab",
    "AKIAABCDEFGHIJKLMNOP",
    "AIza" + LONG,
    "eyJhbGciOiJ.eyJzdWIiOiI.x",
    "s3://user:password@host",
    "?sig=abcdef",
    "&access_token=abcdefgh",
    "https://hooks.slack.com/services/x",
    "https://api.telegram.org/bot1",
    LONG,
    LONG + "+/=",
]
NAMES = ["token", "SECRET", "My.PassWord", "passwd", "api_key", "APIKEY", "access_key", "private_key"]
NAMES += ["to\u212aen", "\u017fecret", "ap\u0131_key", "AP\u0130_KEY", "key", "x"]
PIECES = st.one_of(
    st.sampled_from(TOKENS),
    st.sampled_from(NAMES),
    st.sampled_from(SPACES),
    st.sampled_from(["=", ":", "'", '"', "= '", '": "', "\r\n", "x", "your", "\ufffd", "é", "中", LONG[:12], LONG[:5]]),
    st.text(max_size=3),
)
BYTES = st.one_of(PIECES.map(lambda text: text.encode("utf-8", "surrogatepass")), st.binary(max_size=3))
CONTENTS = st.lists(BYTES, max_size=12).map(b"".join)
ASSIGNMENTS = st.tuples(
    st.sampled_from(NAMES),
    st.sampled_from(["", "'", '"']),
    st.lists(st.sampled_from(SPACES), max_size=2).map("".join),
    st.sampled_from([":", "="]),
    st.lists(st.sampled_from(SPACES), max_size=2).map("".join),
    st.sampled_from(["'", '"']),
    st.sampled_from([LONG[:12], LONG, "中a1" * 4, "\u017f1" * 6, LONG * 6]),
    st.sampled_from(["'", '"']),
).map(lambda parts: "".join(parts).encode())


@settings(max_examples=300, deadline=None)
@given(CONTENTS)
@example(("\u3000\n" + LONG).encode())
@example(b"\x1f" * 5000 + LONG.encode())
def test_what_the_exact_test_finds_is_never_cleared(content: bytes) -> None:
    assert may_hold_secret(content) or not _searched(content)


@settings(max_examples=200, deadline=None)
@given(CONTENTS, ASSIGNMENTS, CONTENTS)
def test_nor_is_an_assignment(before: bytes, assignment: bytes, after: bytes) -> None:
    content = before + b"\nx\n" + assignment + b"\nx\n" + after
    assert may_hold_secret(content) or not _searched(content)


def test_every_kind_of_token_alone_in_a_line_is_a_suspect() -> None:
    for token in TOKENS[:-2]:
        content = f"first line\n# see {token} here\nlast line\n".encode()
        assert _searched(content) and may_hold_secret(content), token


def test_ordinary_source_is_cleared() -> None:
    source = (
        b"import os\n\nmax_tokens = 512\nitems.sort(key=lambda k: k.token)\nURL = 'https://example.org/a?b=c'\n" * 9
    )
    assert not may_hold_secret(source)
    assert not may_hold_secret(source + "# 中文\n".encode())
