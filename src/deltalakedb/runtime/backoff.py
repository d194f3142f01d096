"""Back-off: how long to wait before another attempt. The loops are elsewhere: each has its own end condition."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

_MAX_DOUBLINGS = 60
"""More would leave the range of a float."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that double from the first to the longest, each a random part of its full length.

    Without the randomness, writers that met once would meet again after each wait.
    """

    first_seconds: float
    longest_seconds: float
    shortest_part: float = 0.5
    longest_part: float = 1.0

    def seconds(self, failures: int = 0) -> float:
        """The wait after so many failures before this one."""
        full = min(self.longest_seconds, self.first_seconds * 2.0 ** min(failures, _MAX_DOUBLINGS))
        return full * random.uniform(self.shortest_part, self.longest_part)

    def sleep(self, failures: int = 0) -> None:
        """Sleep for `seconds`."""
        time.sleep(self.seconds(failures))
