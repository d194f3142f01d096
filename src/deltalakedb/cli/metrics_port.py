"""Serves the metrics of a long-running command over HTTP, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from deltalakedb.cli import output
from deltalakedb.exceptions import ConfigError, MissingExtraError

MetricsPortOption = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        metavar="N",
        min=0,
        max=65535,
        help="Serve this process's metrics for Prometheus at http://127.0.0.1:N/metrics; 0 chooses a free port.",
    ),
]


@contextmanager
def served_metrics(port: int | None) -> Iterator[int | None]:
    """Serve the metrics for the duration of the block; yields the port. Without a port nothing is served."""
    if port is None:
        yield None
        return
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError:
        raise MissingExtraError("--metrics-port", "serve") from None
    from deltalakedb.telemetry import MetricsCollector

    registry = CollectorRegistry(auto_describe=False)
    registry.register(MetricsCollector())
    try:
        server, thread = start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise ConfigError(f"the metrics cannot be served at port {port}: {error.strerror}") from error
    try:
        output.say(f"metrics: http://127.0.0.1:{server.server_port}/metrics")
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
