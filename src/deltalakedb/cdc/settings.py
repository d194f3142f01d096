"""The settings of a capture: what is captured, where it goes, and how large and how late a batch may be."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from deltalakedb.exceptions import ConfigError, redact
from deltalakedb.names import parse_namespace

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmg]?)(?:i?b)?\s*", re.IGNORECASE)
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)?\s*", re.IGNORECASE)
_SIZES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_DURATIONS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_SLOT = re.compile(r"[a-z0-9_]{1,63}")
_MIN_BATCH_BYTES: Final = 1 << 16


def parse_size(text: str | int) -> int:
    """Bytes: a number, or a text such as `64MB` (a megabyte has 1024 * 1024 bytes)."""
    return round(_parse(str(text), _SIZE, "64MB", lambda unit: _SIZES[unit.lower()]))


def parse_duration(text: str | float) -> float:
    """Seconds: a number, or a text such as `5s`, `500ms`, `2min`."""
    return _parse(str(text), _DURATION, "5s", lambda unit: _DURATIONS[unit.lower() or "s"])


def _parse(text: str, form: re.Pattern[str], example: str, factor: Callable[[str], float]) -> float:
    found = form.fullmatch(text)
    if found is None:
        raise ConfigError(f"{text!r} is not understood; write it like {example}")
    return float(found[1]) * factor(found[2] or "")


@dataclass(frozen=True, slots=True, repr=False)
class CaptureSettings:
    """One capture: a publication of a Postgres database, followed through one replication slot."""

    source: str
    """How to connect: a libpq DSN or URI."""
    publication: str
    slot: str = ""
    tables: tuple[str, ...] = ()
    """Source tables (`schema.name`, or a name in `public`); none means all that the publication has."""
    namespace: str | None = None
    """Where all tables go; None: a table goes into a namespace named as its schema is."""
    batch_bytes: int = 64 << 20
    """So much write-ahead log ends a batch; of log that holds little, up to eight times as much."""
    batch_seconds: float = 5.0
    """After so long a batch ends, however small."""
    heartbeat_seconds: float = 60.0
    """How often progress is noted while nothing is captured."""
    parallelism: int = 0
    """Tasks that read a batch or copy a table side by side; 0: as many as Spark runs at once."""
    buckets: int = 0
    """Partitions by a hash of the key that tables of current rows are made with; 0: none."""
    change_data_feed: bool = False
    deletion_vectors: bool = True
    column_mapping: bool = False
    """Makes tables that can follow renamed and dropped columns."""
    text_columns: tuple[str, ...] = ()
    """`schema.table.column`: captured as the text Postgres prints, whatever the type."""
    optimize_files: int = 32
    """Small files of a table that are compacted once there are so many; 0: never."""

    def __post_init__(self) -> None:
        if not self.publication:
            raise ConfigError("a capture needs a publication: create publication shop for all tables")
        if not self.slot:
            object.__setattr__(self, "slot", "dl_" + re.sub(r"[^a-z0-9_]", "_", self.publication.lower())[:60])
        if _SLOT.fullmatch(self.slot) is None:
            raise ConfigError(f"{self.slot!r} cannot name a slot: 1 to 63 lower-case letters, digits and underscores")
        if self.namespace is not None:
            object.__setattr__(self, "namespace", parse_namespace(self.namespace))
        if self.batch_bytes < _MIN_BATCH_BYTES:
            raise ConfigError(f"a batch has at least 64KB, not {self.batch_bytes} bytes")
        if self.batch_seconds < 0 or self.heartbeat_seconds <= 0:
            raise ConfigError("the batch window and the heartbeat are durations, such as 5s")

    @property
    def control_table(self) -> str:
        """The lake's table that has no rows, only the capture's progress and what it knows of its tables."""
        return f"{self.namespace or 'cdc'}.cdc_{self.slot}"

    def __repr__(self) -> str:
        return redact(f"CaptureSettings({self.source!r}, publication={self.publication!r}, slot={self.slot!r})")
