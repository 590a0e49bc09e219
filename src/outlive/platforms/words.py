"""The closed vocabularies of platform facts. Lint refuses any other word; code compares with these only."""

from __future__ import annotations

import re

SCHEMA_VERSION = 2

KINDS = ("ssh-rental", "cloud-api", "kubernetes", "slurm", "notebook", "local")
CONFIDENCES = ("battle-tested", "documented", "reported")
TRI = ("yes", "no", "partial", "unknown", "n/a")
"""`n/a`: the question does not arise there. Everything but `yes` is treated as "do not rely on it"."""

SURVIVALS = ("yes", "no", "limited", "partial", "unknown", "n/a")
"""`limited` survives for the hours that stand beside it."""

TIER_KINDS = ("local-disk", "network-fs", "object", "snapshot")
ROLES = ("root", "data", "durable")
SPEEDS = ("fast", "medium", "slow", "unknown")
"""Fastest first; the root of a box is its fastest tier that survives a stop and is not shared."""

COMMITS = ("rename", "marker", "unknown")
"""How a file becomes complete there, as far as is known before the tier is probed."""

SCOPES = ("instance", "host", "region", "account", "unknown")
"""How far a tier can be carried: a disk tied to a host, a mount of one region, a drive of the account."""

TIER_PROBES = ("env", "glob", "given")
"""How to find a tier without a fixed path: a variable's value, the only match of a pattern, or the user's word."""

HINTS = ("env", "file", "path", "hostname", "dmi", "address", "mount")
VERB_ROLES = ("pause", "low-cost-run", "restart", "destroy", "cleanup", "cancel", "none")
CONFIRMS = ("listing", "person", "nothing")
"""Who can say that the verb took effect: the platform's listing through its API, or a person's look."""

STARTS_WHEN = (
    "box-started",
    "box-stopped",
    "box-released",
    "box-idle",
    "run-started",
    "run-ended",
    "client-gone",
    "in-box-shutdown",
    "balance-zero",
    "rental-ended",
    "host-leaving",
    "disk-created",
    "last-access",
    "invoice-issued",
    "period-began",
    "image-saving",
    "vendor-notice",
)
EFFECTS = ("releases", "deletes", "stops", "kills", "bills", "blocks")
SEVERITIES = ("money", "data", "time", "correctness")
DETECT_WHERE = ("box", "api", "local", "console", "log")
CHANGES = ("never", "on-restart", "on-recreate", "unknown", "n/a")
KEY_REGISTRATIONS = ("none", "optional", "before-create")
ENV_IS = ("image-base-conda", "docker-image", "vm-image", "user-managed", "site-modules", "notebook-image")
DETACH = ("tmux", "sbatch", "k8s-job", "kaggle-commit", "none")
HOOKS = ("start-file", "start-command", "systemd-unit", "cron-reboot", "requeue", "controller", "new-version")
PROXIES = ("source-file", "set-env")
MIRRORS = ("yes", "no", "host-dependent")
SIGNALS = ("TERM", "none", "unknown")
NOTICES = ("signal", "http", "outside", "none")
PRICE_FROM = ("free", "offer", "console", "unknown")
DIGESTS = ("yes", "no", "n/a", "unknown")
HOW = ("ours", "api", "by-hand", "nothing")
"""Who carries out one of the six verbs: we do over the transport, the platform's API, a person, or nobody."""

SIX_VERBS = ("up", "push", "run", "watch", "pull", "down")
NEVER_PUT = ("image", "start-command", "notebook", "repository", "job-script", "config-map", "public-dataset")

SLUG = re.compile(r"^[a-z0-9]+(-[a-z0-9]+)*$")
VERB_NAME = re.compile(r"^[a-z0-9]+(_[a-z0-9]+)*$")
MONTH = re.compile(r"^20[0-9]{2}-(0[1-9]|1[0-2])$")
PATH = re.compile(r"^(/|~/)[^\s,;<>()$*]*$|^~$")
API = re.compile(r"^[a-z0-9-]+(\.[a-z0-9_-]+){1,3}$")
URL = re.compile(r"^(https://\S+|package:[A-Za-z0-9_.-]+==\S+)$")
ENV_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
PLACEHOLDERS = ("data", "durable", "vcpu", "work", "run")
PRICE = re.compile(r"[$¥€£]\s?\d|\d\s?(USD|CNY|RMB|EUR|元|块)\b|\d\s?元")
