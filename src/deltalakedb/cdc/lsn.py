"""Log sequence numbers: positions in Postgres' write-ahead log, as text (`16/B374D848`) and as numbers."""

from __future__ import annotations

import re

from deltalakedb.exceptions import ConfigError

_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def parse_lsn(text: str) -> int:
    """Parse an LSN as Postgres prints it."""
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{text!r} is not an LSN; one looks like 16/B374D848")
    return int(match[1], 16) << 32 | int(match[2], 16)


def format_lsn(lsn: int) -> str:
    """Format an LSN as Postgres prints it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
