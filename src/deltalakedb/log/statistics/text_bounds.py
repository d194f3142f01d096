"""Owns the cutting of strings to bounds: short, storable everywhere, and never on the wrong side of the value."""

from __future__ import annotations

import re
from typing import Final

_TEXT_BYTES: Final = 64
_EXACT_CHARS: Final = 32  # writers truncate longer strings
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def lower_text_bound(value: str) -> str:
    """A prefix of at most 64 bytes that every database can store; no string that starts with `value` is below it."""
    match = _UNSTORABLE.search(value)
    if match:
        value = value[: match.start()]
    if len(value) * 4 <= _TEXT_BYTES or (value.isascii() and len(value) <= _TEXT_BYTES):
        return value
    return value.encode()[:_TEXT_BYTES].decode(errors="ignore")


def upper_text_bound(value: str, *, exact: bool = False) -> str | None:
    """The value itself if it is short enough to be complete; else a string above all with its prefix; None: no bound.

    `exact`: the value is not truncated, however long it is.
    """
    match = _UNSTORABLE.search(value)
    if match:
        # The rest after the prefix is below the next character that can be stored.
        prefix = value[: match.start()]
        if len(prefix.encode()) < _TEXT_BYTES - 3:
            return prefix + ("\x01" if match.group() == "\x00" else "\ue000")
        value = prefix
    elif (exact or len(value) < _EXACT_CHARS) and len(value.encode()) <= _TEXT_BYTES:
        return value
    return successor(value.encode()[: _TEXT_BYTES - 4].decode(errors="ignore"))


def successor(prefix: str) -> str | None:
    """The smallest string, with no more characters, above every string with this prefix; None if there is none."""
    while prefix:
        code = ord(prefix[-1]) + 1
        if code <= 0x10FFFF:
            return prefix[:-1] + chr(0xE000 if code == 0xD800 else code)
        prefix = prefix[:-1]
    return None
