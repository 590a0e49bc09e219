"""Does this look like a secret? Names and values that must not be written down."""

import re

_WORDS = frozenset(
    "KEY KEYS APIKEY TOKEN TOKENS SECRET SECRETS PASSWORD PASSWORDS PASSWD PASSPHRASE PASS PWD CREDENTIAL "
    "CREDENTIALS CREDS AUTH AUTHORIZATION PAT COOKIE PRIVATE PIN SIGNATURE LICENSE WEBHOOK DSN".split()
)
_ENDINGS = ("APIKEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIALS", "ACCESSKEY", "SECRETKEY")
_HARMLESS = frozenset("PWD OLDPWD TOKENIZERS_PARALLELISM SSH_AUTH_SOCK XAUTHORITY".split())
_PUBLIC = frozenset("PUBLIC PUB PUBKEY".split())
_PLACES = frozenset("FILE PATH DIR HOME SOCK CREDENTIALS".split())

_VALUES = re.compile(
    r"""
      -----BEGIN\ [A-Z ]*PRIVATE\ KEY
    | \b(?:hf|gho|ghp|ghs|ghu|ghr|npm|pypi|r8|nvapi|sk|pk|rk|glpat|dckr_pat|rpa|lin_api)[_-][A-Za-z0-9_-]{16,}
    | \bgithub_pat_[A-Za-z0-9_]{16,}
    | \bxox[abeprs]-[A-Za-z0-9-]{10,}
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b
    | \bAIza[0-9A-Za-z_-]{30,}
    | \beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.
    | [A-Za-z][A-Za-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@
    | [?&](?:sig|token|key|secret|password|access_token|api_key)=[^&\s]{6,}
    | \bhooks\.slack\.com/services/
    | \bapi\.telegram\.org/bot
    """,
    re.VERBOSE,
)


def looks_secret(name: str, value: str) -> bool:
    """Return whether an environment variable probably holds a secret, by its name or by its value.

    Errs to the side of True: the caller shows the names of what was left out. Empty values, public keys,
    and places of files are not secrets; a switch or a short number is not one under a plural name
    (``MAX_TOKENS=512``).
    """
    if not value or name in _HARMLESS:
        return False
    if _VALUES.search(value):
        return True
    words = set(re.split(r"[^A-Z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()))
    if words & _PUBLIC:
        return False
    if words & _WORDS or any(word.endswith(_ENDINGS) for word in words):
        if value.startswith(("/", "~/", "./")) and words & _PLACES:
            return False
        return not (_is_setting(value) and not words & _STRICT)
    return _looks_random(value)


_STRICT = frozenset("PASSWORD PASSWD PASS PWD PIN SECRET TOKEN KEY APIKEY PASSPHRASE".split())


def _is_setting(value: str) -> bool:
    return re.match(r"(?i)^(?:\d{1,6}|true|false|yes|no|on|off|none|auto)$", value) is not None


def _looks_random(value: str) -> bool:
    """Long, unbroken, and of capitals, small letters and digits in even mixture: nobody types that."""
    if len(value) < 32 or re.match(r"^[A-Za-z0-9+/=_-]+$", value) is None or value.startswith("/"):
        return False
    classes = sum(re.search(kind, value) is not None for kind in ("[A-Z]", "[a-z]", "[0-9]"))
    if classes < 3:
        return False
    import math

    counts = [value.count(letter) / len(value) for letter in set(value)]
    return -sum(share * math.log(share, 2) for share in counts) > 4.0
