"""Brings `_delta_log` level as `dl mirror once` does, in a process of its own."""

from dataclasses import asdict
from typing import Any

from tests.faults.conftest import Place
from tests.faults.processes import Ended, run


def bring_level(place: Place, **config: Any) -> Ended:
    """Run the reconciler once; it must end well, and no table may be left behind."""
    ended = run("mirror", place={**asdict(place), "warehouse": str(place.warehouse), "config": config})
    assert [line for line in ended.said if line.get("error")] == []
    return ended
