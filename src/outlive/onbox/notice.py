"""Notices: what the box says by itself at the end and on alarms, with the client dead or asleep."""

import json
import os
import time
from typing import Any, Dict, List

from outlive.onbox.children import Crew
from outlive.onbox.context import Context

TRIES = 4


def text_of(kind: str, context: Context, sentence: str) -> str:
    """Return the notice's one line."""
    return "outlive: %s on %s: %s" % (context.run.id, os.uname().nodename, sentence)


class Notifier:
    """Sends notices through a child. A notice that fails is tried again a few times and its failure journaled."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.crew = Crew(1)
        self._count = 0

    def send(self, kind: str, sentence: str, facts: Dict[str, Any]) -> None:
        """Queue one notice to every address of the payload. Nothing happens when there is none."""
        urls: List[str] = [u for u in self.context.payload.get("notify") or [] if u]
        for position, url in enumerate(urls):
            self._count += 1
            body = {
                "schema": "outlive/notice/1",
                "kind": kind,
                "run": self.context.run.id,
                "host": os.uname().nodename,
                "text": text_of(kind, self.context, sentence),
                "sentence": sentence,
                "facts": facts,
            }
            self._post("notice-%d" % self._count, url, position, body, 1)

    def _post(self, key: str, url: str, position: int, body: Dict[str, Any], attempt: int) -> None:
        def done(answer: Dict[str, Any]) -> None:
            if "error" in answer and attempt < TRIES:
                self._post(key, url, position, body, attempt + 1)
            elif "error" in answer:
                # the address itself is a secret; its position in the list is not
                self.context.record("notified", notice=body["kind"], to=position, ok=False, why=answer["error"])
            else:
                self.context.record("notified", notice=body["kind"], to=position, ok=True, status=answer["status"])

        request = {"url": url, "body": body, "wait_s": float(self.context.limits["retry_wait_s"]) * (attempt - 1)}
        self.crew.add("%s-%d" % (key, attempt), "notice", request, 60.0, done)

    def tick(self) -> None:
        self.crew.tick()

    def said(self, kind: str) -> bool:
        """Return whether a notice of this kind was sent, or given up, since the run last went on."""
        return any(r["notice"] == kind for r in self.context.view.notices)


def post(request: Dict[str, Any]) -> Dict[str, Any]:
    """Child: POST a notice. ``text`` is what chat webhooks show; the rest is for programs.

    Answers ``{"status"}``, or ``{"error"}`` without the address in it.
    """
    import urllib.error
    import urllib.request  # it brings a mail library and TLS: the supervisor, which imports this file, needs neither

    time.sleep(float(request.get("wait_s", 0)))
    data = json.dumps(request["body"]).encode("utf-8")
    call = urllib.request.Request(
        request["url"], data=data, headers={"Content-Type": "application/json", "User-Agent": "outlive"}
    )
    try:
        with urllib.request.urlopen(call, timeout=20) as reply:
            return {"status": reply.status}
    except urllib.error.HTTPError as error:
        return {"error": "the notice's address answered %d" % error.code}
    except (OSError, ValueError) as error:
        return {"error": "the notice could not be sent: %s" % type(error).__name__}
