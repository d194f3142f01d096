"""The memory of a capture under a steady load: of the driver's Python, of Java and of the Python workers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from bench.cdc_lab import MAKE_EVENTS, NAMESPACE, capture_lab, engines_of
from bench.lab import Lab, say
from bench.report import Row, below

RATE = 200
"""Transactions a second: the machine has time left, so that it is the capture that is measured."""
WARM_PART = 1 / 3
"""The part of the samples that is left out: caches fill, and Java compiles."""
SAMPLES = 180
HALF_HOUR = 1_800.0
LEAST_SECONDS = 600.0
"""A shorter run has no verdict: a line through its samples says little of half an hour."""
MB = 1 << 20
NOTE = (
    f"memory: resident, under {RATE} transactions/s with a 2 s window; the slope of a line through the samples after "
    "the first third, for half an hour. *Live heap* is what Java keeps after a collection: its resident memory may "
    "grow up to its limit without that. *Driver* is the process of the benchmark, which does nothing else meanwhile"
)
LIMITS = {"driver": 64, "live heap": 32, "workers": 64}
"""MB in half an hour; Java's resident memory has no limit here."""


def memory_rows(lab: Lab) -> list[Row]:
    """A row for each part of the capture: what it has at the end, and how fast it grows."""
    captures, engine, seconds = capture_lab(lab), engines_of(lab)[0], lab.sizes.cdc_memory_seconds
    with captures.source("memory") as source, captures.lake(engine, "memory") as catalog:
        source.run(*MAKE_EVENTS)
        captures.capture(catalog, source)
        with captures.capturing(catalog, source, batch_window="2s") as check:
            with Sampler(captures.spark, max(1.0, seconds / SAMPLES)) as sampler:
                say(f"{RATE} transactions/s for {seconds:.0f} s", lambda: captures.transact(source, RATE, seconds))
            check()
        captures.capture(catalog, source)
        events, expected = catalog.table(f"{NAMESPACE}.events").count(), source.run("select count(*) from events")
        assert events == expected, f"{events} of {expected} rows were captured"
    what = f"memory over {seconds / 60:.1f} minutes"
    return [_row(f"{what}, {part}", engine, part, samples, seconds) for part, samples in sampler.parts.items()]


def _row(what: str, engine: str, part: str, samples: list[tuple[float, float]], seconds: float) -> Row:
    measured = samples[int(len(samples) * WARM_PART) :]
    times, sizes = np.array(measured).T
    slope = float(np.polyfit(times, sizes, 1)[0])
    limit = LIMITS.get(part) if seconds >= LEAST_SECONDS else None
    return Row(
        what, engine, f"{sizes[-1]:,.0f} MB", f"{sizes[0]:,.0f} MB at the start", slope * HALF_HOUR,
        " MB in half an hour", None if limit is None else below(limit, " MB"), NOTE,
    )  # fmt: skip


@dataclass(slots=True)
class Sampler:
    """Measures this process and those below it, in a thread, until the block ends."""

    spark: Any
    interval_seconds: float
    parts: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Seconds and MB, by part."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Sampler:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            for part, size in self._sizes().items():
                self.parts.setdefault(part, []).append((time.monotonic(), size / MB))
            if self._stop.wait(self.interval_seconds):
                return

    def _sizes(self) -> Mapping[str, float]:
        java = self.spark.sparkContext._jvm.java.lang
        java.System.gc()
        runtime = java.Runtime.getRuntime()
        sizes = {"driver": resident_bytes(os.getpid()), "live heap": runtime.totalMemory() - runtime.freeMemory()}
        sizes |= {"Java": 0, "workers": 0}
        for pid, name in descendants(os.getpid()):
            if name == "java":
                sizes["Java"] += resident_bytes(pid)
            elif name.startswith("python"):
                sizes["workers"] += resident_bytes(pid)
        return sizes


def resident_bytes(pid: int) -> int:
    """The resident memory of a process; zero if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def descendants(pid: int) -> Iterator[tuple[int, str]]:
    """The processes that a process has started, and those that they have started, with their names."""
    children: dict[int, list[tuple[int, str]]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            except OSError:  # it has ended
                continue
            children.setdefault(int(rest.split()[1]), []).append((int(folder.name), name))
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            yield child
            waiting.append(child[0])
