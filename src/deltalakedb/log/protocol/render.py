"""Renders the bytes of a commit's file, which depend only on its actions: on no clock, locale, hash seed or mode."""

from __future__ import annotations

from collections.abc import Iterable

from deltalakedb.log.protocol.actions import Action, Protocol
from deltalakedb.log.protocol.commit import render_line
from deltalakedb.log.protocol.fence import fence


def render_commit(actions: Iterable[Action], *, fenced: bool) -> bytes:
    """One line per action, each ended by a line break; `fenced` adds our table feature to the protocol action."""
    lines = []
    for action in actions:
        rendered = fence(action) if fenced and isinstance(action, Protocol) else action
        lines.append(render_line(rendered))
    lines.append(b"")
    return b"\n".join(lines)
