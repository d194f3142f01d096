"""Log events and spans: what happened, for an application that listens, without secrets; recording never raises."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, ParamSpec

from deltalakedb.exceptions import redact

logger = logging.getLogger("deltalakedb.telemetry")
P = ParamSpec("P")


def never_raises(function: Callable[P, None]) -> Callable[P, None]:
    """Log an error at level DEBUG instead of raising it."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except Exception:  # no commit may fail because it could not be counted
            logger.debug("telemetry could not record %s", function.__name__, exc_info=True)

    return call


events = logging.getLogger("deltalakedb.events")
events.addHandler(logging.NullHandler())  # without a handler Python prints warnings to stderr


class _JsonText:
    """JSON that is rendered only when a handler formats the record."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __str__(self) -> str:
        return json.dumps(self._fields, ensure_ascii=False, default=str)


@never_raises
def log_event(name: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Log a structured record: its text is `name {json}`, its attribute `event` the same as a dict, secrets masked."""
    if not events.isEnabledFor(level):
        return
    event = {"event": name, **{key: masked(value) for key, value in fields.items() if value is not None}}
    events.log(level, "%s %s", name, _JsonText(event), extra={"event": event})


def masked(value: Any) -> Any:
    """A value of an event or a span, with the secrets in its texts masked."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {str(key): masked(item) for key, item in value.items()}
    return [masked(item) for item in value] if isinstance(value, list | tuple) else value


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
