"""A TCP proxy in front of a server that forwards a commit, waits for the answer, and hangs up on the client."""

import contextlib
import socket
import threading
from collections.abc import Iterator

Server = str | tuple[str, int]
"""A socket in the file system, or host and port."""


class CuttingProxy:
    """Listens on a port of its own; `cuts` connections are cut after their commit, the rest pass untouched."""

    def __init__(self, server: Server, *, cuts: int, wait_for_answer: bool, commits_by: bytes) -> None:
        self._server = server
        self._cuts = cuts
        self._wait_for_answer = wait_for_answer
        self._commits_by = commits_by
        self._lock = threading.Lock()
        self.num_cut = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX if isinstance(self._server, str) else socket.AF_INET)
                server.connect(self._server)
                threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        cut = threading.Event()
        threading.Thread(target=self._answers, args=(client, server, cut), daemon=True).start()
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if self._commits_by in data and self._take_cut():
                    cut.set()
                    server.sendall(data)
                    if not self._wait_for_answer:
                        break
                    continue  # `_answers` hangs up when the server has spoken
                server.sendall(data)
        _hang_up(client)
        if not cut.is_set():
            server.close()

    def _answers(self, client: socket.socket, server: socket.socket, cut: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if cut.is_set():
                    break
                client.sendall(data)
        _hang_up(client)

    def _take_cut(self) -> bool:
        with self._lock:
            if self.num_cut >= self._cuts:
                return False
            self.num_cut += 1
            return True


def _hang_up(client: socket.socket) -> None:
    """Closing alone would wait for the other thread, which still listens."""
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)
    client.close()


@contextlib.contextmanager
def cutting(
    server: Server, *, cuts: int, wait_for_answer: bool = True, commits_by: bytes = b"commit\x00"
) -> Iterator[CuttingProxy]:
    """`commits_by`: how the statement that commits is known."""
    proxy = CuttingProxy(server, cuts=cuts, wait_for_answer=wait_for_answer, commits_by=commits_by)
    try:
        yield proxy
    finally:
        proxy.close()
