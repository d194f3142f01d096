"""The bytes of a commit's file: they depend on its actions alone, on no clock, locale, hash seed or mode."""

from __future__ import annotations

from collections.abc import Iterable

from deltalakedb.log.actions import Action, Protocol
from deltalakedb.log.commit import render_line
from deltalakedb.log.fence import fence


def render_commit(actions: Iterable[Action], *, fenced: bool) -> bytes:
    """One line per action, each ended by a line break; `fenced` puts our table feature into the protocol action."""
    lines = []
    for action in actions:
        shown = fence(action) if fenced and isinstance(action, Protocol) else action
        lines.append(render_line(shown))
    lines.append(b"")
    return b"\n".join(lines)
