"""An OpenAI-compatible endpoint on this machine, which judges by a list of right answers."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

RIGHT, WRONG = "It names the same.\nVERDICT: CORRECT", "Something else.\nVERDICT: WRONG"
GARBAGE = "The answer is correct in part, which makes it hard to say."


@dataclass(frozen=True)
class Reply:
    """Instead of a verdict. held_s: before it is given."""

    status: int
    body: Any = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    held_s: float = 0.0


@dataclass(frozen=True)
class Request:
    path: str
    authorization: str | None
    body: dict[str, Any]

    @property
    def said(self) -> str:
        content: str = self.body["messages"][-1]["content"]
        return content.partition("Answer to mark:\n")[2]


def by_words(said: str) -> str:
    """As the conversations of these tests are to be judged."""
    if said == "hm":
        return GARBAGE
    return RIGHT if said in ("the violin", "Basil", "in April 2024", "fresh bread") else WRONG


class JudgeServer:
    """first: given to the first requests, one each. Use it as a context."""

    def __init__(
        self, *first: Reply, judge: Callable[[str], str] = by_words, held_s: float = 0.0
    ) -> None:
        self.requests: list[Request] = []
        self.peak = 0
        self.judge = judge
        self._first = deque(first)
        self._held_s = held_s
        self._in_flight = 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def said(self) -> list[str]:
        return [request.said for request in self.requests]

    def __enter__(self) -> JudgeServer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, request: Request) -> Reply:
        with self._lock:
            self.requests.append(request)
            self._in_flight += 1
            self.peak = max(self.peak, self._in_flight)
            reply = self._first.popleft() if self._first else None
        time.sleep(self._held_s if reply is None else reply.held_s)
        if reply is None:
            reply = Reply(200, completion(self.judge(request.said)))
        with self._lock:
            self._in_flight -= 1
        return reply

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                asked = Request(self.path, self.headers.get("Authorization"), body)
                reply = server.answer(asked)
                text = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body)
                content = text if isinstance(text, bytes) else text.encode()
                try:
                    self.send_response(reply.status)
                    for name, value in reply.headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)
                except ConnectionError:
                    # Whoever asked did not wait.
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                return

        return Handler


def completion(content: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content}
    return {"object": "chat.completion", "choices": [{"index": 0, "message": message}]}


def dead_url() -> str:
    """Where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/v1"
