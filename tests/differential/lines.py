"""Reads the tables of calls: one call a line, below a heading that names the member and the table it starts from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "calls"
HEADING = re.compile(r"\[(?P<member>[\w.]+)(?: on (?P<start>\w+))?\]")


@dataclass(frozen=True, slots=True)
class Line:
    """A call, as Python: `t` is the table, `dl` the library, `uri` and `folder` its address; see places.py."""

    area: str
    """The file it stands in."""
    member: str
    """The member of `deltalake` that it is about: `DeltaTable.delete`."""
    start: str
    """The table that it starts from, one of starts.py."""
    text: str

    @property
    def name(self) -> str:
        return f"{self.start}: {self.text}"


def _read(path: Path) -> Iterator[Line]:
    member, start = "", ""
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        heading = HEADING.fullmatch(text)
        if heading is not None:
            member, start = heading["member"], heading["start"] or "none"
        elif text.strip() and not text.startswith("#"):
            if not member:
                raise ValueError(f"{path.name}:{number}: a call before the first heading")
            yield Line(path.stem, member, start, text)


@cache
def all_lines() -> tuple[Line, ...]:
    return tuple(line for path in sorted(FOLDER.glob("*.txt")) for line in _read(path))
