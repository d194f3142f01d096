"""Prints how many calls are the same as in `deltalake`, by area and by class of facts, at pytest's end."""

from __future__ import annotations

from collections import Counter
from typing import Any

NAME = "differential"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    lines: Counter[str] = Counter()
    different: Counter[tuple[str, str]] = Counter()
    classes: Counter[tuple[str, str]] = Counter()
    for report in terminalreporter.getreports(""):
        for name, (area, found) in getattr(report, "user_properties", ()):
            if name != NAME:
                continue
            lines[area] += 1
            for mode, facts in found.items():
                different[area, mode] += bool(facts)
                classes.update((mode, fact) for fact in facts)
    if not lines:
        return
    terminalreporter.section("the same as deltalake")
    total = sum(lines.values())
    lines["all calls"], width = total, 12
    for mode in ("path", "sql"):
        different["all calls", mode] = sum(count for (_, where), count in different.items() if where == mode)
    terminalreporter.write_line(f"{'':{width}}{'calls':>7}{'paths':>9}{'SQL':>9}")
    for area, count in lines.items():
        shares = "".join(f"{1 - different[area, mode] / count:>9.1%}" for mode in ("path", "sql"))
        terminalreporter.write_line(f"{area:{width}}{count:>7}{shares}")
    for fact in sorted({fact for _, fact in classes}):
        shares = "".join(f"{1 - classes[mode, fact] / total:>9.1%}" for mode in ("path", "sql"))
        terminalreporter.write_line(f"{fact:{width}}{'':>7}{shares}")
