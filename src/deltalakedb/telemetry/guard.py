"""Recording never raises: whatever goes wrong in it must not fail the commit it is told about."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

logger = logging.getLogger("deltalakedb.telemetry")
P = ParamSpec("P")


def never_raises(function: Callable[P, None]) -> Callable[P, None]:
    """Note an error at level DEBUG, and go on."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except Exception:  # whatever it is: nobody's commit fails because it could not be counted
            logger.debug("telemetry could not record %s", function.__name__, exc_info=True)

    return call
