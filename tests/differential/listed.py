"""The list of known differences, `differences.toml`: by reason, which call differs where and in what."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

FILE = Path(__file__).parent / "differences.toml"
UNEXPLAINED = "unexplained"

Place = tuple[str, str]
"""A mode and a line's name."""


@dataclass
class Reason:
    """Why calls differ; `to_mend` where ours is the one to change."""

    title: str
    reason: str
    to_mend: bool = False
    calls: dict[Place, tuple[str, ...]] = field(default_factory=dict)
    """For each call, the classes of facts that differ."""


@cache
def read_reasons() -> dict[str, Reason]:
    found: dict[str, Reason] = {}
    for key, entry in tomllib.loads(FILE.read_text(encoding="utf-8")).items():
        calls = {
            (mode, name): tuple(classes.split(", "))
            for modes, classes, name in entry["calls"]
            for mode in modes.split()
        }
        found[key] = Reason(entry["title"], entry["reason"], entry.get("to_mend", False), calls)
    return found


@cache
def listed() -> dict[Place, tuple[str, ...]]:
    """The classes of facts that may differ, and must, by mode and line."""
    return {place: classes for reason in read_reasons().values() for place, classes in reason.calls.items()}


def replace_calls(found: Mapping[Place, Iterable[str]]) -> dict[str, Reason]:
    """The reasons with the calls that differ now: each keeps its reason, new ones have none yet."""
    reasons = read_reasons()
    of_place = {place: key for key, reason in reasons.items() for place in reason.calls}
    fresh = {key: Reason(one.title, one.reason, one.to_mend) for key, one in reasons.items() if key != UNEXPLAINED}
    for place, classes in found.items():
        key = of_place.get(place, UNEXPLAINED)
        if key not in fresh:
            fresh[key] = Reason("unexplained", "say why, or mend it", to_mend=True)
        fresh[key].calls[place] = tuple(sorted(classes))
    return {key: reason for key, reason in fresh.items() if reason.calls}


def write_reasons(reasons: Mapping[str, Reason]) -> None:
    parts = ["# Known differences, by reason: [modes, facts, call]. Kept true by `python -m tests.differential`.\n"]
    for key, reason in reasons.items():
        parts.append(f"[{key}]\ntitle = {_text(reason.title)}\nreason = {_text(reason.reason)}")
        if reason.to_mend:
            parts.append("to_mend = true")
        parts.append("calls = [")
        by_call: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for (mode, name), classes in reason.calls.items():
            by_call.setdefault((name, classes), []).append(mode)
        for (name, classes), modes in by_call.items():
            parts.append(f"  [{_text(' '.join(modes))}, {_text(', '.join(classes))}, {_text(name)}],")
        parts.append("]\n")
    FILE.write_text("\n".join(parts), encoding="utf-8")


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
