"""Log events: one structured record for each notable event, without secrets; recording never raises."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
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
