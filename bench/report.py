"""The report: rows with a bar and a verdict, the machine, the versions and the command, as Markdown."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("deltalakedb", "deltalake", "duckdb", "duckdb-extension-ducklake", "pyarrow", "psycopg", "pyspark")


@dataclass(frozen=True, slots=True)
class Bar:
    """What a row has to reach."""

    text: str
    holds: Callable[[float], bool]


def at_least(limit: float, unit: str = "x") -> Bar:
    return Bar(f">= {limit:,.0f}{unit}", lambda value: value >= limit)


def at_most(limit: float, unit: str = "x") -> Bar:
    return Bar(f"<= {limit:,.0f}{unit}", lambda value: value <= limit)


def below(limit: float, unit: str) -> Bar:
    return Bar(f"< {limit:,.0f}{unit}", lambda value: value < limit)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report; a row without a bar is there to be read."""

    what: str
    engine: str
    ours: str
    against: str
    value: float | None
    unit: str
    bar: Bar | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.bar is None or self.value is None:
            return ""
        return "PASS" if self.bar.holds(self.value) else "MISS"

    def cells(self) -> list[str]:
        value = "" if self.value is None else f"{_figure(self.value)}{self.unit}"
        return [self.what, self.engine, self.ours, self.against, value, self.bar.text if self.bar else "", self.verdict]


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def milliseconds(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 10 else f"{value:.2f} ms"


HEADINGS = ("row", "engine", "ours", "against", "result", "bar", "")


def table(rows: Sequence[Row]) -> str:
    """A Markdown table, padded so that it can be read in a terminal too."""
    cells = [list(HEADINGS), *(row.cells() for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(HEADINGS))]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |" for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def render(title: str, rows: Sequence[Row], *, sizes: str, elapsed_seconds: float, postgres: str, load: float) -> str:
    missed = [row for row in rows if row.verdict == "MISS"]
    judged = [row for row in rows if row.verdict]
    notes = list(dict.fromkeys(row.note for row in rows if row.note))
    about = [*_machine(), _others(load), f"Postgres {postgres}, stock configuration, unix socket", sizes]
    parts = [
        f"## {title}",
        f"`python -m bench {' '.join(sys.argv[1:])}`".replace(" `", "`"),
        "\n".join(f"- {line}" for line in about),
        f"{len(judged) - len(missed)} of {len(judged)} bars reached; the run took {elapsed_seconds:,.0f} s. "
        "Times are medians of calls taken in turns with the peers; trust the ratios.",
        table(rows),
    ]
    if notes:
        parts.append("\n".join(f"- {note}" for note in notes))
    return "\n\n".join(parts) + "\n"


def write(path: Path, title: str, text: str) -> None:
    """Puts the section into the report, in place of the one of that title or behind all others."""
    present = path.read_text() if path.exists() else "# Benchmark results\n"
    head, *sections = re.split(r"(?m)^(?=## )", present)
    titles = [section.splitlines()[0].removeprefix("## ") for section in sections]
    if title in titles:
        sections[titles.index(title)] = text
    else:
        sections.append(text)
    path.write_text("\n".join(part.rstrip("\n") + "\n" for part in (head, *sections)))


def _machine() -> list[str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    return [
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} "
        f"{platform.machine()}, Python {platform.python_version()}",
        versions,
    ]


def _others(load: float) -> str:
    """What else ran decides how far milliseconds can be trusted."""
    return f"load average {load:.1f} before the run" + ("; the machine was busy with other work" if load > 1 else "")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
