"""`dl serve`: the catalog over HTTP, for the sessions of a Spark cluster."""

from __future__ import annotations

import logging
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deltalakedb.cli import output
from deltalakedb.cli.options import CatalogOption, WarehouseOption, command
from deltalakedb.exceptions import ConfigError
from deltalakedb.runtime.signals import ended_by_signal

if TYPE_CHECKING:
    from deltalakedb.serve.tls import Tls

PORT = 8787
LOOPBACK = ("127.0.0.1", "localhost", "::1")

TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="A file with the token that clients must send. Without it: DL_SERVE_TOKEN, or serve.token.",
    ),
]

TlsCertOption = Annotated[
    Path | None,
    typer.Option("--tls-cert", metavar="FILE", help="The certificate chain (PEM); clients then use https."),
]

TlsKeyOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-key",
        metavar="FILE",
        help="The certificate's private key (PEM), if it is not in the certificate's file.",
    ),
]


TlsClientCaOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-client-ca",
        metavar="FILE",
        help="CAs (PEM): a client with a certificate of theirs needs no token; its common name is the user.",
    ),
]

WorkersOption = Annotated[
    int,
    typer.Option("--workers", metavar="N", min=1, max=64, help="How many processes serve; one only on DuckDB."),
]

AsWorkerOption = Annotated[
    bool, typer.Option("--as-worker", hidden=True, help="Serve as one of the processes that --workers starts.")
]


def add_to(app: typer.Typer) -> None:
    command(app, "serve", serve)


def serve(
    bridge: Annotated[
        bool, typer.Option("--bridge", help="Serve the Spark bridge: unmodified delta-spark commits through SQL.")
    ] = False,
    iceberg: Annotated[
        bool, typer.Option("--iceberg", help="Serve the Iceberg REST catalog: Spark, PyIceberg, DuckDB and others.")
    ] = False,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="The address to listen at; 0.0.0.0 for every interface.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="The port; 0 chooses a free one.")
    ] = PORT,
    token_file: TokenFileOption = None,
    no_token: Annotated[
        bool,
        typer.Option("--no-token", help="Let every program on this machine in; not with --bridge or another --host."),
    ] = False,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    tls_client_ca: TlsClientCaOption = None,
    access_log: Annotated[bool, typer.Option("--access-log", help="Write a line to stderr for each request.")] = False,
    workers: WorkersOption = 1,
    as_worker: AsWorkerOption = False,
    warehouse: WarehouseOption = None,
    catalog: CatalogOption = None,
) -> None:
    """Serve the catalog over HTTP until SIGINT or SIGTERM; running commits are finished first."""
    from deltalakedb.catalog.catalog import locate_catalog
    from deltalakedb.serve.processes import end_with_parent
    from deltalakedb.serve.server import Endpoint

    _check_options(bridge=bridge, iceberg=iceberg, host=host, token_file=token_file, no_token=no_token)
    tls = _tls_of(tls_cert, tls_key, tls_client_ca)
    settings = locate_catalog(catalog, warehouse=warehouse)[1]
    token = None if no_token else _find_token(token_file, settings.serve_token)
    if tls is None and host not in LOOPBACK:
        output.warn(f"{host} can be reached by others, and without --tls-cert the token is sent unencrypted")
    if workers > 1 and not as_worker:
        shown = _prepare_catalog(catalog, warehouse)
        _serve_with(workers, shown, host=host, port=port, is_tls=tls is not None, iceberg=iceberg)
        return
    with (
        _logging_to_stderr(access_log),
        ended_by_signal() as ended,
        Endpoint(
            catalog, token=token, host=host, port=port, tls=tls, bridge=bridge, iceberg=iceberg, warehouse=warehouse,
            shares_port=as_worker,
        ) as endpoint,
    ):  # fmt: skip
        if as_worker:
            end_with_parent(ended)
        else:
            _print_address(endpoint.url, str(endpoint.catalog.uri), iceberg=iceberg)
        while not ended.wait(1.0):
            endpoint.check()
        if not as_worker:
            output.say("stopping: requests under way are finished")
    if not as_worker:
        output.say("stopped")


def _prepare_catalog(catalog: str | None, warehouse: str | None) -> str:
    """Create or migrate the catalog once, before several processes would; return its address."""
    from deltalakedb.catalog.catalog import connect

    with connect(catalog, warehouse=warehouse) as opened:
        if opened.store.is_for_one_process:
            raise typer.BadParameter(f"{opened.uri} is for one process; Postgres and SQLite take several")
        return str(opened.uri)


def _serve_with(workers: int, catalog: str, *, host: str, port: int, is_tls: bool, iceberg: bool) -> None:
    """Serve with several processes, each of which gets this command's own arguments."""
    from deltalakedb.serve.processes import Processes
    from deltalakedb.serve.server import url_of

    command = [sys.executable, "-m", "deltalakedb.cli", *sys.argv[1:], "--as-worker"]
    with _logging_to_stderr(access_log=False), ended_by_signal() as ended:
        processes = Processes(command, workers, host=host, port=port)
        try:
            _print_address(url_of(host, processes.port, is_tls=is_tls), catalog, iceberg=iceberg)
            processes.watch(ended)
            output.say("stopping: requests under way are finished")
        finally:
            processes.stop()
    output.say("stopped")


def _check_options(*, bridge: bool, iceberg: bool, host: str, token_file: Path | None, no_token: bool) -> None:
    if not bridge and not iceberg:
        raise typer.BadParameter(
            "say what to serve: --bridge for Spark, --iceberg for Iceberg clients, or both", param_hint="--bridge"
        )
    if no_token and (bridge or token_file or host not in LOOPBACK):
        raise typer.BadParameter(
            "without a token only --iceberg is served, and only on this machine", param_hint="--no-token"
        )


def _tls_of(certificate: Path | None, key: Path | None, client_ca: Path | None) -> Tls | None:
    from deltalakedb.serve.tls import Tls

    if certificate is not None:
        return Tls(str(certificate), str(key) if key else None, str(client_ca) if client_ca else None)
    if key is not None:
        raise typer.BadParameter("a key needs its certificate", param_hint="--tls-cert")
    if client_ca is not None:
        raise typer.BadParameter("clients show certificates only to a server that has one", param_hint="--tls-cert")
    return None


def _print_address(url: str, catalog: str, *, iceberg: bool) -> None:
    """Print the URL; the one of Iceberg clients is below it."""
    where = {"url": url, "catalog": catalog, "pid": os.getpid()}
    uri = f"{url}/iceberg"
    if output.settings.json:
        output.emit_json(where | ({"iceberg": uri} if iceberg else {}), indent=None)
    else:
        print(url, flush=True)
    output.say(f"serving {catalog}; SIGINT or SIGTERM ends it")
    if iceberg:
        output.say(f"Iceberg clients connect to the REST catalog {uri}")


def _find_token(file: Path | None, configured: str | None) -> str:
    token = _read_token(file) if file else configured
    if token is None:
        raise ConfigError(
            "clients must show a token: give --token-file FILE, or set DL_SERVE_TOKEN; make one: "
            "python -c 'import secrets; print(secrets.token_urlsafe(32))' > token && chmod 600 token"
        )
    return token


def _read_token(path: Path) -> str:
    try:
        text = path.read_text(encoding="ascii").strip()
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the token file {path} cannot be read: {error}") from error
    if not text:
        raise ConfigError(f"the token file {path} is empty")
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        output.warn(f"{path} can be read by others; chmod 600 {path}")
    return text


class OneLineFormatter(output.LogLines):
    """Escapes what is not printable in a message, so that names that clients send cannot forge lines of the log."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  a method of logging's
        from deltalakedb.serve.requests import printable

        return printable(super().formatMessage(record))


@contextmanager
def _logging_to_stderr(access_log: bool) -> Iterator[None]:
    """Log the package's warnings, and each request if `access_log` is set, while the endpoint serves."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    levels = {"deltalakedb": logging.WARNING} | ({"deltalakedb.access": logging.INFO} if access_log else {})
    before = {name: logging.getLogger(name).level for name in levels}
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.getLogger("deltalakedb").addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger("deltalakedb").removeHandler(handler)
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
