"""Spans around what takes its time, for an application that has set up OpenTelemetry's tracer and wants ours in it."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from deltalakedb.exceptions import redact
from deltalakedb.telemetry.events import masked
from deltalakedb.telemetry.guard import logger, never_raises

_NO_SPAN: AbstractContextManager[None] = nullcontext()
_recording = False


def record_spans() -> None:
    """Open spans from now on. Without it none is opened: `deltalake` puts none into an application's tracer either."""
    global _recording
    _recording = True


def span(name: str, **attributes: str | int | float | bool) -> AbstractContextManager[None]:
    """A span around a block; nothing at all unless spans are recorded and the application has set up a tracer."""
    trace = sys.modules.get("opentelemetry.trace") if _recording else None
    if trace is None:
        return _NO_SPAN
    try:
        provider = trace.get_tracer_provider()
        if isinstance(provider, trace.ProxyTracerProvider):
            return _NO_SPAN
        safe = {key: masked(value) for key, value in attributes.items()}
        # The error's text is added by us, masked: the tracer's own way would keep it as it is.
        plain = {"record_exception": False, "set_status_on_exception": False}
        return _Span(provider.get_tracer("deltalakedb").start_as_current_span(name, attributes=safe, **plain))
    except Exception:  # as in guard.py: the tracer is somebody else's, and no work fails by it
        logger.debug("no span could be opened for %s", name, exc_info=True)
        return _NO_SPAN


class _Span:
    """A span of OpenTelemetry that fails nobody: not when it is entered, not when it is left."""

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
