"""Spans around operations, for an application that has set up an OpenTelemetry tracer and asks for them."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from deltalakedb.exceptions import redact
from deltalakedb.telemetry.events import logger, masked, never_raises

_NO_SPAN: AbstractContextManager[None] = nullcontext()
_recording = False


def record_spans() -> None:
    """Open spans from now on. Without this none is opened, as in `deltalake`."""
    global _recording
    _recording = True


def span(name: str, **attributes: str | int | float | bool) -> AbstractContextManager[None]:
    """A span around a block; does nothing unless spans are recorded and the application has set up a tracer."""
    trace = sys.modules.get("opentelemetry.trace") if _recording else None
    if trace is None:
        return _NO_SPAN
    try:
        provider = trace.get_tracer_provider()
        if isinstance(provider, trace.ProxyTracerProvider):
            return _NO_SPAN
        safe = {key: masked(value) for key, value in attributes.items()}
        # We add the error's text, masked: the tracer would record it unmasked.
        exception_options = {"record_exception": False, "set_status_on_exception": False}
        return _Span(
            provider.get_tracer("deltalakedb").start_as_current_span(name, attributes=safe, **exception_options)
        )
    except Exception:  # as in `never_raises`: an error in the application's tracer must not fail the operation
        logger.debug("no span could be opened for %s", name, exc_info=True)
        return _NO_SPAN


class _Span:
    """An OpenTelemetry span that never raises when it is entered or left."""

    __slots__ = ("_manager", "_span")

    def __init__(self, manager: Any) -> None:
        self._manager: Any = manager
        self._span: Any = None

    @never_raises
    def __enter__(self) -> None:
        self._span = self._manager.__enter__()

    @never_raises
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if self._span is None:
            return
        if error is not None:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_attribute("error.type", type(error).__name__)
            self._span.set_status(Status(StatusCode.ERROR, redact(str(error))))
        self._manager.__exit__(None, None, None)
