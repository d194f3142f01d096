"""TLS of the server: its certificate, which may be renewed while it serves, and the certificates of its clients."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import threading
from dataclasses import dataclass

from uvicorn.protocols.http.h11_impl import H11Protocol

from deltalakedb.serve.auth import CLIENT_CERTIFICATE

logger = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""How often the files of the certificate are looked at."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificate chain and private key, both PEM files; the key may be in the certificate's file."""

    certificate: str
    key: str | None = None
    client_ca: str | None = None
    """The CAs (PEM) whose certificates prove who a client is; without them no certificate is asked for."""


class CertifiedProtocol(H11Protocol):
    """HTTP that tells the application which certificate the client of a connection has shown."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        certificate = transport.get_extra_info("peercert")
        if certificate:
            self.app_state = {**self.app_state, CLIENT_CERTIFICATE: certificate}


class Renewal:
    """Takes a renewed certificate for new connections when its files change. What cannot be used is left alone."""

    def __init__(self, tls: Tls, context: ssl.SSLContext) -> None:
        self._tls = tls
        self._context = context
        self._seen = self._state()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="deltalakedb-certificate", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(LOOK_SECONDS):
            state = self._state()
            if state != self._seen:
                self._seen = state
                self._take()

    def _take(self) -> None:
        try:
            # A certificate without its key, as between two writes of files, would break the context in use.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._tls.certificate, self._tls.key)
            self._context.load_cert_chain(self._tls.certificate, self._tls.key)
        except (OSError, ssl.SSLError) as error:
            logger.warning("the renewed certificate %s cannot be used yet: %s", self._tls.certificate, error)
        else:
            logger.info("the certificate %s was renewed", self._tls.certificate)

    def _state(self) -> list[tuple[int, int, int] | None]:
        return [_state_of(path) for path in (self._tls.certificate, self._tls.key) if path]


def _state_of(path: str) -> tuple[int, int, int] | None:
    try:
        state = os.stat(path)
    except OSError:
        return None
    return state.st_mtime_ns, state.st_ino, state.st_size
