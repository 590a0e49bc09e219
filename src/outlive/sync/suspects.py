"""Could a file hold a secret? A cheap question that clears nearly every file, so that few are read line by line.

Yes means "ask the exact test"; no must be certain. Whatever `cautions.looks_secret_file` can find in a content has to
be said yes to here: who adds a rule there or in `probes.secret_values` adds its plain words here, and
`tests/properties/test_suspects.py` compares the two.
"""

from __future__ import annotations

import re

_WORDS = (
    b"PRIVATE KEY",
    b"xox",
    b".eyJ",
    b"hooks.slack.com/services/",
    b"api.telegram.org/bot",
)
_RUN = b"a" * 19
_AS_RUNS = bytes(97 if code < 128 and (chr(code).isalnum() or chr(code) in "_-") else 32 for code in range(256))
"""Most tokens are an unbroken run of at least so many characters, and many files have no such run."""
_RUN_WORDS = (b"AKIA", b"ASIA", b"AIza")
_TOKEN = re.compile(
    rb"[_-](?=[A-Za-z0-9_-]{16})(?:(?<=(?:hf|r8|sk|pk|rk)[_-])|(?<=(?:gho|ghp|ghs|ghu|ghr|npm|rpa)[_-])|(?<=pypi[_-])"
    rb"|(?<=(?:nvapi|glpat)[_-])|(?<=lin_api[_-])|(?<=dckr_pat[_-])|(?<=github_pat[_-]))"
)
_LOGIN = re.compile(rb"://[^/\s:@]*:[^/\s@]+@")
_QUERY = re.compile(rb"[?&](?:sig|token|key|secret|password|access_token|api_key)=")
_NAMED = (b"token", b"secret", b"password", b"passwd", b"key")
_ASSIGNS = re.compile(rb"""["']?[\s\x1c-\x1f]*[:=][\s\x1c-\x1f]*["'][^"'\s]{12}""").match
_FOREIGN = tuple(letter.encode() for letter in "\u0130\u0131\u017f\u212a")
"""Letters of other alphabets that a match without regard to case takes for i, s and k."""
_WIDE_SPACE = re.compile("[\x85\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")
_SPACE = b" \t\n\r\f\v\x1c\x1d\x1e\x1f"
ALONE = 400
"""A single line of so few characters may be a bare token, which has no word to be known by."""


def may_hold_secret(data: bytes) -> bool:
    """Return False only for a content in which the exact test finds nothing."""
    for word in _WORDS:
        if word in data:
            return True
    if _RUN in data.translate(_AS_RUNS) and (_TOKEN.search(data) or any(word in data for word in _RUN_WORDS)):
        return True
    if b"://" in data and _LOGIN.search(data):
        return True
    if (b"?" in data or b"&" in data) and _QUERY.search(data):
        return True
    if data.isascii():
        only = data.strip(_SPACE)
        if len(only) <= ALONE and b"\n" not in only:
            return True
        lowered = data.lower()
    else:
        text = data.decode("utf-8", "replace")
        bare = text.strip()
        if (len(bare) <= ALONE and "\n" not in bare) or any(letter in data for letter in _FOREIGN):
            return True
        # between a name and its value a space of any alphabet may stand
        lowered = _WIDE_SPACE.sub(" ", text).encode("utf-8", "replace").lower()
    for word in _NAMED:
        at = lowered.find(word)
        while at >= 0:
            at += len(word)
            if _ASSIGNS(lowered, at):
                return True
            at = lowered.find(word, at)
    return False
