"""Keeps telemetry from raising: an error in recording must not fail the commit that it records."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

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
