"""Clocks: medians of calls taken in turns, and the memory a call adds in a process of its own."""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

MAX_ROUNDS = 200


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds of one call, over the rounds that were run."""

    median_ms: float
    best_ms: float
    rounds: int
    answer: Any = None

    @property
    def seconds(self) -> float:
        return self.median_ms / 1000


def time_in_turns(
    calls: Mapping[str, Callable[[], Any]], rounds: int = 9, budget_seconds: float = 20
) -> dict[str, Timing]:
    """Runs every call once a round, so that a busy moment of the machine hits all of them; one round is a warm-up.

    Stops early, after three rounds at least, when the budget is spent. A fast call is repeated inside a
    round, otherwise its median would be that of one cold call after a slow neighbour has emptied the caches.
    """
    samples: dict[str, list[float]] = {name: [] for name in calls}
    answers = {name: call() for name, call in calls.items()}
    started = time.perf_counter()
    for done in range(min(rounds, MAX_ROUNDS)):
        if done >= 3 and time.perf_counter() - started > budget_seconds:
            break
        for name, call in calls.items():
            gc.collect()
            samples[name] += _samples(call)
    return {
        name: Timing(statistics.median(taken) * 1000, min(taken) * 1000, len(taken), answers[name])
        for name, taken in samples.items()
    }


def _samples(call: Callable[[], Any], fast_seconds: float = 0.05, repeats: int = 5) -> list[float]:
    taken: list[float] = []
    while not taken or (sum(taken) < fast_seconds and len(taken) < repeats):
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return taken


def time_once(call: Callable[[], Any]) -> Timing:
    begin = time.perf_counter()
    answer = call()
    elapsed = (time.perf_counter() - begin) * 1000
    return Timing(elapsed, elapsed, 1, answer)


_PROBE = """
import json, sys
from pathlib import Path
def status(key):
    return int(next(l for l in Path("/proc/self/status").read_text().splitlines() if l.startswith(key)).split()[1])
def reset_peak():
    Path("/proc/self/clear_refs").write_text("5")
{prepare}
reset_peak()
before = status("VmRSS")
{call}
print(json.dumps({{"before_mb": before / 1024, "peak_mb": status("VmHWM") / 1024, "answer": answer}}))
"""


def peak_memory_mb(prepare: str, call: str) -> tuple[float, Any]:
    """How far the peak of resident memory rises while `call` (which sets `answer`) runs, after `prepare`."""
    script = _PROBE.format(prepare=prepare, call=call)
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    result = json.loads(done.stdout.splitlines()[-1])
    return max(result["peak_mb"] - result["before_mb"], 0.0), result["answer"]
