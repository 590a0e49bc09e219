"""Requests from clients: files renamed into ``inbox/``, answered in the journal."""

import json
import os
from typing import Any, Callable, Dict, List

from outlive.onbox.context import Context, read_json

KINDS = ("stop", "checkpoint", "extend", "release", "retry")


def pending(context: Context) -> List[Dict[str, Any]]:
    """Return the requests that have no answer yet, oldest first, each with its ``file``."""
    try:
        names = sorted(n for n in os.listdir(context.run.inbox) if n.endswith(".json"))
    except FileNotFoundError:
        return []
    requests = []
    for name in names:
        path = os.path.join(context.run.inbox, name)
        request = read_json(path)
        if request is None or request.get("kind") not in KINDS or not isinstance(request.get("id"), str):
            _drop(path)  # never renamed in by us: half a file, or a newer client's word
            continue
        if request["id"] in context.view.answers:
            _drop(path)
            continue
        request["file"] = path
        requests.append(request)
    return requests


def handle(context: Context, handlers: Dict[str, Callable[[Dict[str, Any]], Dict[str, Any]]]) -> None:
    """Answer every pending request. The answer is in the journal before the file is removed."""
    for request in pending(context):
        carry_out(context, handlers, request)
        _drop(request["file"])


def carry_out(
    context: Context, handlers: Dict[str, Callable[[Dict[str, Any]], Dict[str, Any]]], request: Dict[str, Any]
) -> None:
    """Do what one request asks and journal the answer; one that was answered is not done again."""
    known = isinstance(request.get("id"), str) and request.get("kind") in handlers
    if not known or request["id"] in context.view.answers:
        return
    try:
        answer = handlers[request["kind"]](request)
    except (OSError, ValueError, TypeError, KeyError) as error:
        # a request that cannot be carried out is answered, or it would be tried for ever
        answer = {"ok": False, "text": "%s: %s" % (type(error).__name__, error)}
    context.record("answered", id=request["id"], asked=request["kind"], **answer)


def put(inbox: str, request: Dict[str, Any], sequence: int) -> None:
    """Publish a request for the supervisor (the client's half, run on the box). Raises OSError without room."""
    os.makedirs(inbox, exist_ok=True)
    final = os.path.join(inbox, "%012d-%s.json" % (sequence, request["id"]))
    aside = os.path.join(inbox, ".%s.part" % request["id"])
    try:
        with open(aside, "w") as text:
            text.write(json.dumps(request))
            text.flush()
            os.fsync(text.fileno())
        os.replace(aside, final)
    except OSError:
        _drop(aside)
        raise


def _drop(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
