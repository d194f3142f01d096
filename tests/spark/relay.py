"""A TCP relay in front of an endpoint that forwards commits and drops their answers: the sender cannot know."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit


class Relay:
    """Answers to the first `drops` commits are lost, with their connections; all else passes."""

    def __init__(self, url: str, *, drops: int) -> None:
        self._target = (urlsplit(url).hostname, urlsplit(url).port)
        self._left = drops
        self.dropped = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                drop = threading.Event()
                threading.Thread(target=self._requests, args=(client, server, drop), daemon=True).start()
                threading.Thread(target=self._answers, args=(client, server, drop), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, drop: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if data.startswith(b"POST /bridge/v1/commit?"):
                    with self._lock:
                        if self._left > 0:
                            self._left -= 1
                            drop.set()
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _answers(self, client: socket.socket, server: socket.socket, drop: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if drop.is_set():
                    self.dropped += 1
                    break
                client.sendall(data)
        for end in (client, server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@contextlib.contextmanager
def relay(url: str, *, drops: int) -> Iterator[Relay]:
    made = Relay(url, drops=drops)
    try:
        yield made
    finally:
        made.close()
