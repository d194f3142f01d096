"""Many writers at once, each in a process of its own, and what came of it."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

from bench.writers import Job

START_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Crowd:
    """What a run of several writers did; the times of commits are those their callers waited."""

    writers: int
    """Each of them has made one more commit, before the clock ran."""
    commits: int
    failed: int
    seconds: float
    latencies_ms: tuple[float, ...]
    errors: tuple[str, ...]

    @classmethod
    def together(cls, crowds: Sequence[Crowd]) -> Crowd:
        """Several runs as one."""
        return cls(
            sum(one.writers for one in crowds),
            sum(one.commits for one in crowds),
            sum(one.failed for one in crowds),
            sum(one.seconds for one in crowds),
            tuple(latency for one in crowds for latency in one.latencies_ms),
            tuple(dict.fromkeys(error for one in crowds for error in one.errors)),
        )

    @property
    def per_second(self) -> float:
        return self.commits / self.seconds

    @property
    def median_ms(self) -> float:
        return statistics.median(self.latencies_ms)

    @property
    def p95_ms(self) -> float:
        return percentile(self.latencies_ms, 95)

    @property
    def text(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.per_second:,.0f}/s, p50 {self.median_ms:.0f} p95 {self.p95_ms:,.0f} ms{failed}"


def percentile(values: Sequence[float], rank: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * rank // 100)]


def run_crowd(jobs: Sequence[Job]) -> Crowd:
    """Starts all writers, gives the word when every one is ready, and gathers what they tell."""
    command = [sys.executable, "-m", "bench.writers"]
    writers = [
        subprocess.Popen([*command, job.to_json()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for job in jobs
    ]
    try:
        for writer in writers:
            _answer(writer.stdout)
        start = time.monotonic() + START_SECONDS
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write(f"{start}\n")
            writer.stdin.flush()
        told = [_answer(writer.stdout) for writer in writers]
    finally:
        for writer in writers:
            writer.communicate(timeout=60)
    return _crowd(
        len(jobs),
        [(begin, end) for one in told for begin, end in one["times"]],
        [e for one in told for e in one["errors"]],
    )


def _crowd(writers: int, times: list[tuple[float, float]], errors: list[str]) -> Crowd:
    if not times:
        raise RuntimeError(f"no writer committed anything; the first of {len(errors)} errors: {errors[:1]}")
    seconds = max(end for _, end in times) - min(begin for begin, _ in times)
    latencies = tuple((end - begin) * 1000 for begin, end in times)
    return Crowd(writers, len(times), len(errors), seconds, latencies, tuple(dict.fromkeys(errors)))


def _answer(pipe: IO[str] | None) -> dict[str, Any]:
    assert pipe is not None
    line = pipe.readline()
    if not line:
        raise RuntimeError("a writer died before it was ready; its error is above")
    answer: dict[str, Any] = json.loads(line)
    return answer
