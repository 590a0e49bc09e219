"""A real HTTP server that records what is sent to it: the other end of webhooks in tests."""

from __future__ import annotations

import dataclasses
import http.server
import json
import threading
import time
from typing import Any


@dataclasses.dataclass(frozen=True)
class Received:
    """One request. Header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Sink:
    """Listens on 127.0.0.1 at a free port from the start until `close`; `url` is its address.

    Every request is recorded in `requests` before it is answered: 200, unless `answers` says otherwise.
    """

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self._answers: list[tuple[int, float]] = []
        self._arrived = threading.Condition()
        sink = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                status, delay_s = sink._record(
                    Received(
                        self.command,
                        self.path,
                        {key.lower(): value for key, value in self.headers.items()},
                        self.rfile.read(length),
                    )
                )
                if delay_s:
                    sink._closing.wait(delay_s)
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the sender did not wait for the answer, which a test may want

            do_GET = do_PUT = do_POST

            def log_message(self, *args: Any) -> None:
                pass

        self._closing = threading.Event()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def _record(self, received: Received) -> tuple[int, float]:
        with self._arrived:
            self.requests.append(received)
            self._arrived.notify_all()
            return self._answers.pop(0) if self._answers else (200, 0.0)

    def answers(self, *statuses: int, delay_s: float = 0.0) -> None:
        """Answer the next requests with these statuses, each after `delay_s`; then 200 again."""
        with self._arrived:
            self._answers += [(status, delay_s) for status in statuses]

    def wait(self, count: int = 1, timeout_s: float = 10.0) -> list[Received]:
        """The requests, as soon as there are `count`; AssertionError if that takes longer than `timeout_s`."""
        end_s = time.monotonic() + timeout_s
        with self._arrived:
            while len(self.requests) < count:
                left_s = end_s - time.monotonic()
                if left_s <= 0 or not self._arrived.wait(left_s):
                    raise AssertionError(f"{len(self.requests)} of {count} requests after {timeout_s} s")
            return list(self.requests)

    def last(self) -> Received | None:
        with self._arrived:
            return self.requests[-1] if self.requests else None

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
