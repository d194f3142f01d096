"""Certificates: those of clients prove who they are, and the server's own may be renewed while it serves."""

from __future__ import annotations

import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPSConnection
from pathlib import Path

import pytest

import deltalakedb.serve.tls
from deltalakedb.exceptions import ConfigError
from deltalakedb.serve import Endpoint
from deltalakedb.serve.tls import Tls

TOKEN = "a-token-of-the-tests"


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority in a folder."""

    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "ca.pem"

    def certificate(self, name: str, subject: str, alternative: str = "IP:127.0.0.1") -> tuple[Path, Path]:
        """A certificate of this authority, and its key."""
        cert, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        signed = ["-CA", str(self.file), "-CAkey", str(self.folder / "ca.key")]
        _openssl(subject, cert, key, *signed, "-addext", f"subjectAltName={alternative}")
        return cert, key


def authority(folder: Path, name: str) -> Authority:
    made = Authority(folder / name)
    made.folder.mkdir()
    _openssl(f"/CN={name}", made.file, made.folder / "ca.key")
    return made


def _openssl(subject: str, cert: Path, key: Path, *more: str) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", subject, "-keyout", str(key), "-out", str(cert), *more]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("tls"), "ours")


@pytest.fixture
def endpoint(ours: Authority, tmp_path: Path) -> Iterator[Endpoint]:
    cert, key = ours.certificate("server", "/CN=localhost")
    tls = Tls(str(cert), str(key), client_ca=str(ours.file))
    with Endpoint(tmp_path / "c.db", token=TOKEN, warehouse=str(tmp_path / "lake"), tls=tls) as made:
        yield made


def ask(endpoint: Endpoint, ca: Path, certificate: tuple[Path, Path] | None = None, **headers: str) -> int:
    """The status of a request that changes something; 0 if the server refuses the connection."""
    context = ssl.create_default_context(cafile=str(ca))
    if certificate is not None:
        context.load_cert_chain(*certificate)
    connection = HTTPSConnection(endpoint.host, endpoint.port, context=context, timeout=30)
    try:
        connection.request("POST", "/bridge/v1/namespace?namespace=s", b"{}", headers)
        return connection.getresponse().status
    except (ssl.SSLError, ConnectionError):
        return 0
    finally:
        connection.close()


def test_a_client_with_a_certificate_needs_no_token_and_is_named_in_the_audit(
    endpoint: Endpoint, ours: Authority
) -> None:
    ada = ours.certificate("ada", "/CN=ada/OU=analysts/OU=loaders")
    assert ask(endpoint, ours.file, ada) == 200
    (row,) = endpoint.catalog.audit(actor="ada")
    assert row["action"] == "create namespace"
    assert row["details"]["request"]["proof"] == "certificate"


def test_an_alternative_name_is_taken_without_a_common_name(endpoint: Endpoint, ours: Authority) -> None:
    job = ours.certificate("job", "/O=lake", "URI:spiffe://lake/job")
    assert ask(endpoint, ours.file, job) == 200
    assert endpoint.catalog.audit(actor="spiffe://lake/job")


def test_nothing_else_proves_a_caller(endpoint: Endpoint, ours: Authority, tmp_path: Path) -> None:
    ada = ours.certificate("ada2", "/CN=ada")
    others = authority(tmp_path, "others")
    forged = others.certificate("ada", "/CN=ada")
    assert ask(endpoint, ours.file) == 401
    assert ask(endpoint, ours.file, Authorization=f"Bearer {TOKEN}") == 200
    # Whoever shows a token is judged by it.
    assert ask(endpoint, ours.file, ada, Authorization="Bearer another-token") == 401
    assert ask(endpoint, ours.file, ada, Authorization="Basic YWRhOg==") == 401
    assert ask(endpoint, ours.file, forged) == 0
    assert ask(endpoint, ours.file, forged, Authorization=f"Bearer {TOKEN}") == 0
    assert endpoint.catalog.audit(actor="ada") == []


def test_a_renewed_certificate_is_used_for_new_connections(
    ours: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deltalakedb.serve.tls, "LOOK_SECONDS", 0.05)
    cert, key = ours.certificate("renewed", "/CN=localhost")
    with Endpoint(tmp_path / "d.db", token=TOKEN, tls=Tls(str(cert), str(key))) as served:
        first = _shown_by(served)
        new_cert, new_key = ours.certificate("next", "/CN=localhost")
        cert.write_bytes(new_cert.read_bytes())
        time.sleep(0.3)  # without its key it cannot be used yet
        assert _shown_by(served) == first
        key.write_bytes(new_key.read_bytes())
        deadline = time.monotonic() + 30
        while _shown_by(served) == first:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert _shown_by(served) == ssl.PEM_cert_to_DER_cert(new_cert.read_text())


def _shown_by(endpoint: Endpoint) -> bytes:
    """The certificate that the server shows."""
    context = ssl._create_unverified_context()
    with (
        socket.create_connection((endpoint.host, endpoint.port), timeout=30) as plain,
        context.wrap_socket(plain) as wrapped,
    ):
        shown = wrapped.getpeercert(binary_form=True)
    assert shown is not None
    return shown


def test_a_ca_of_clients_that_cannot_be_used_is_named(ours: Authority, tmp_path: Path) -> None:
    cert, key = ours.certificate("server3", "/CN=localhost")
    with pytest.raises(ConfigError, match=r"missing\.pem"):
        Endpoint(tmp_path / "e.db", token=TOKEN, tls=Tls(str(cert), str(key), str(tmp_path / "missing.pem")))
