"""An HTTP proxy in front of the S3 endpoint that breaks requests on a plan, and records every put that got through."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import urlsplit

Fault = Literal["500", "503", "lost answer", "slow", "cut before", "cut answer"]
Conditions = Literal["honoured", "ignored", "501", "400"]
"""What the store does with a put that must not overwrite (`If-None-Match: *`)."""

LOST_SECONDS = 1.5
_NOT_IMPLEMENTED = (
    b"<Error><Code>NotImplemented</Code>"
    b"<Message>A header you provided implies functionality that is not implemented</Message></Error>"
)
_HOP_HEADERS = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


@dataclass(frozen=True, slots=True)
class Put:
    """A put that reached the store: the object, what was sent, what the store said."""

    key: str
    body: bytes = field(repr=False)
    status: int
    fault: Fault | None


@dataclass
class FaultyS3:
    """`choose` names the fault for a request (method, key), or None to let it pass."""

    target: str
    choose: Callable[[str, str], Fault | None]
    conditions: Conditions = "honoured"
    read_only: bool = False
    """Whether the credentials may only read."""
    puts: list[Put] = field(default_factory=list)
    faults: list[tuple[str, str, Fault]] = field(default_factory=list)
    endpoint_url: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def decide(self, method: str, key: str) -> Fault | None:
        with self._lock:
            fault = self.choose(method, key)
            if fault is not None:
                self.faults.append((method, key, fault))
            return fault

    def record(self, put: Put) -> None:
        with self._lock:
            self.puts.append(put)


def _handler(proxy: FaultyS3) -> type[BaseHTTPRequestHandler]:
    target = urlsplit(proxy.target)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self._body()
            key = urlsplit(self.path).path
            fault = proxy.decide(self.command, key)
            if fault in ("500", "503"):
                self._answer(int(fault), {}, b"<Error><Code>InternalError</Code></Error>")
                return
            if proxy.read_only and self.command not in ("GET", "HEAD"):
                self._answer(403, {}, b"<Error><Code>AccessDenied</Code></Error>")
                return
            if self.command == "PUT" and self.headers.get("If-None-Match") and proxy.conditions in ("501", "400"):
                self._answer(int(proxy.conditions), {}, _NOT_IMPLEMENTED)
                return
            if fault == "cut before":
                self.close_connection = True
                return
            if fault == "slow":
                time.sleep(0.3)
            status, headers, content = self._forward(body)
            if self.command == "PUT":
                proxy.record(Put(key, body, status, fault))
            if fault == "lost answer":
                time.sleep(LOST_SECONDS)
                self.close_connection = True
                return
            if fault == "cut answer":
                self.close_connection = True
                with suppress(OSError):
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Le")
                return
            self._answer(status, headers, content)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_any  # noqa: N815 the server's own spelling

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
                chunks = []
                while size := int(self.rfile.readline().strip().split(b";")[0], 16):
                    chunks.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(chunks)
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
            connection = HTTPConnection(target.hostname or "", target.port or 80, timeout=30)
            left_out = _HOP_HEADERS | ({"if-none-match"} if proxy.conditions == "ignored" else set())
            headers = {name: value for name, value in self.headers.items() if name.lower() not in left_out}
            connection.request(self.command, self.path, body, {**headers, "Content-Length": str(len(body))})
            response = connection.getresponse()
            content = response.read()
            found = {name: value for name, value in response.getheaders() if name.lower() not in _HOP_HEADERS}
            if self.command == "HEAD":
                found["Content-Length"] = response.getheader("Content-Length") or "0"
            connection.close()
            return response.status, found, content

        def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
            with suppress(OSError):
                self.send_response_only(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if "Content-Length" not in headers:
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the server's own spelling
            """Every fault is asserted on; none needs to be printed."""

    return Handler


@contextmanager
def faulty_s3(
    target: str,
    choose: Callable[[str, str], Fault | None] = lambda _method, _key: None,
    conditions: Conditions = "honoured",
) -> Iterator[FaultyS3]:
    proxy = FaultyS3(target, choose, conditions)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(proxy))
    server.daemon_threads = True
    proxy.endpoint_url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
