"""How many requests a caller may send in a second."""

from __future__ import annotations

import math
import time
from collections import OrderedDict

from deltalakedb.exceptions import RateLimitError
from deltalakedb.runtime.caller import Caller

BURST_SECONDS = 2.0
"""A caller that was silent may send as many requests at once as are allowed in this time."""
MAX_REMEMBERED = 10_000


class RateLimit:
    """Lets each caller send so many requests in a second; every process of an endpoint counts for itself."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._burst = max(1.0, per_second * BURST_SECONDS)
        self._left: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()
        """How many requests each caller had left, and when; the least recent first."""

    def check(self, caller: Caller) -> None:
        """Count a request; RateLimitError if the caller has none left."""
        key, now = (caller.proof, caller.name), time.monotonic()
        left, at = self._left.pop(key, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_second)
        self._left[key] = (max(0.0, left - 1), now) if left >= 1 else (left, now)
        while len(self._left) > MAX_REMEMBERED:
            self._left.popitem(last=False)
        if left < 1:
            raise RateLimitError(
                f"{caller.name} sends more than {self._per_second:g} requests in a second (serve.rate_limit)",
                retry_seconds=math.ceil((1 - left) / self._per_second),
            )
