"""The settings of a capture: what is captured, where it goes, and how large and how late a batch may be."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from deltalakedb.cdc.captured_table import TableOptions, fingerprint
from deltalakedb.cdc.rule_parsing import parse_patterns, parse_rules
from deltalakedb.cdc.source_names import parse_source, source_parts, split_source
from deltalakedb.cdc.table_rules import COMPOSITES, Composites, TableChoice, TableRule, choose_table, match_table
from deltalakedb.exceptions import ConfigError, redact
from deltalakedb.store.names import parse_namespace

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmg]?)(?:i?b)?\s*", re.IGNORECASE)
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)?\s*", re.IGNORECASE)
_SIZES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_DURATIONS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_SLOT = re.compile(r"[a-z0-9_]{1,63}")
_LONGEST_SLOT: Final = 63
_DIGEST: Final = 8
_MIN_BATCH_BYTES: Final = 1 << 16
_PAGE_BYTES: Final = 8192
RESNAPSHOT_POLICIES: Final = ("never", "tables", "slot")
_MIN_KEY_LENGTH: Final = 16
MASK_OPTION: Final = "maskSecret"
"""The option that passes the key of the masks to readers; Spark hides options that have `secret` in their names."""


def parse_size(text: str | int) -> int:
    """Parse bytes: a number, or a text such as `64MB` (a megabyte has 1024 * 1024 bytes)."""
    return round(_parse(str(text), _SIZE, "64MB", lambda unit: _SIZES[unit.lower()]))


def parse_duration(text: str | float) -> float:
    """Parse seconds: a number, or a text such as `5s`, `500ms`, `2min`."""
    return _parse(str(text), _DURATION, "5s", lambda unit: _DURATIONS[unit.lower() or "s"])


def _parse(text: str, form: re.Pattern[str], example: str, factor: Callable[[str], float]) -> float:
    match = form.fullmatch(text)
    if match is None:
        raise ConfigError(f"{text!r} is not understood; write it like {example}")
    return float(match[1]) * factor(match[2] or "")


def default_slot(database: str, publication: str) -> str:
    """The default name of a slot: slots belong to the whole server, so it includes the database's name.

    If that is no valid slot name, the name ends with a digest of it.
    """
    preferred = "_".join(filter(None, ("dl", database, publication)))
    allowed = re.sub(r"[^a-z0-9_]", "_", preferred.lower())
    if allowed == preferred and len(allowed) <= _LONGEST_SLOT:
        return allowed
    digest = hashlib.sha256(preferred.encode()).hexdigest()[:_DIGEST]
    return f"{allowed[: _LONGEST_SLOT - _DIGEST - 1]}_{digest}"


def database_of(source: str) -> str:
    """The database that a DSN names; empty if it names none or is invalid, which connecting will report."""
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    except ModuleNotFoundError:
        return ""
    try:
        parameters = conninfo_to_dict(source)
    except ProgrammingError:
        return ""
    return str(parameters.get("dbname") or "")


@dataclass(frozen=True, slots=True, repr=False)
class CaptureSettings:
    """One capture: a publication of a Postgres database, followed through one replication slot."""

    source: str
    """How to connect: a libpq DSN or URI."""
    publication: str
    slot: str = ""
    tables: tuple[str, ...] = ()
    """Source tables (`schema.name`, or a name in `public`); empty: all tables of the publication."""
    namespace: str | None = None
    """The namespace of all tables; None: that of a table is named like its schema."""
    batch_bytes: int = 64 << 20
    """A batch ends after this much write-ahead log; of log with few changes it takes up to eight times as much."""
    batch_seconds: float = 5.0
    """A batch ends after this time, however small."""
    heartbeat_seconds: float = 60.0
    """How often progress is recorded while nothing is captured."""
    parallelism: int = 0
    """Tasks that read a batch or copy a table in parallel; 0: as many as Spark runs at once."""
    buckets: int = 0
    """Partitions by a hash of the key for new tables of current rows; 0: none."""
    change_data_feed: bool = False
    deletion_vectors: bool = True
    column_mapping: bool = False
    """Creates tables that can follow renamed and dropped columns."""
    text_columns: tuple[str, ...] = ()
    """`schema.table.column`: captured as the text that Postgres prints, whatever the type."""
    optimize_files: int = 32
    """Small files of a table are compacted once there are this many; 0: never."""
    copy_beside_bytes: int = 64 << 20
    """This much of the source's tables is copied while the stream waits; the rest is copied beside it."""
    chunk_bytes: int = 64 << 20
    """The size of a part of a copy beside the stream, which is read at once, and again after a kill."""
    resnapshot: str = "never"
    """What is copied again automatically: `never` anything, `tables` that have stopped, or also all tables when the
    `slot` is lost."""
    include: tuple[str, ...] = ()
    """Patterns of source tables; without any, and without `tables`, all tables of the publication."""
    exclude: tuple[str, ...] = ()
    """Patterns of source tables that are not captured, whatever the other settings say."""
    composites: Composites = "text"
    """What a column of a composite type becomes."""
    rules: tuple[TableRule, ...] = ()
    mask_key: str | None = None
    """The key of masks that are hashes."""
    slot_alert_bytes: int = 0
    """More log than this kept for the slot is reported as a problem; 0: only the server's own limit counts."""

    def __post_init__(self) -> None:
        if not self.publication:
            raise ConfigError("a capture needs a publication: create publication shop for all tables")
        if not self.slot:
            object.__setattr__(self, "slot", default_slot(database_of(self.source), self.publication))
        if _SLOT.fullmatch(self.slot) is None:
            raise ConfigError(f"{self.slot!r} cannot name a slot: 1 to 63 lower-case letters, digits and underscores")
        if self.namespace is not None:
            object.__setattr__(self, "namespace", parse_namespace(self.namespace))
        if self.batch_bytes < _MIN_BATCH_BYTES:
            raise ConfigError(f"a batch has at least 64KB, not {self.batch_bytes} bytes")
        if self.resnapshot not in RESNAPSHOT_POLICIES:
            allowed = ", ".join(RESNAPSHOT_POLICIES)
            raise ConfigError(f"{self.resnapshot!r} is no policy of new copies (resnapshot): choose one of {allowed}")
        if self.chunk_bytes < _PAGE_BYTES:
            raise ConfigError(f"a part of a copy has at least 8KB, not {self.chunk_bytes} bytes")
        if self.batch_seconds < 0 or self.heartbeat_seconds <= 0:
            raise ConfigError("the batch window and the heartbeat are durations, such as 5s")
        self._check_choice()

    def _check_choice(self) -> None:
        parse_patterns((*self.include, *self.exclude))
        object.__setattr__(self, "rules", parse_rules(self.rules))
        if self.composites not in COMPOSITES:
            raise ConfigError(f"composites is one of {', '.join(COMPOSITES)}, not {self.composites!r}")
        for name in self.tables:
            pattern = next(
                (excluded for excluded in self.exclude if match_table(excluded, parse_source(name)) is not None),
                None,
            )
            if pattern is not None:
                raise ConfigError(f"the table {name} is among the tables, and {pattern} of exclude leaves it out")
        if self.mask_key is not None and len(self.mask_key) < _MIN_KEY_LENGTH:
            raise ConfigError(f"mask_key has at least {_MIN_KEY_LENGTH} characters: openssl rand -hex 32 makes one")

    def check_key(self) -> None:
        """ConfigError if a mask needs a key and there is none. Reading a capture's status needs no key."""
        if self._hashes and self.mask_key is None:
            raise ConfigError(
                "a column is masked by a hash, which needs a key: set mask_key or DL_CDC_MASK_KEY, and keep the key; "
                "openssl rand -hex 32 makes one"
            )

    @property
    def _hashes(self) -> bool:
        return any(mask.kind == "hash" for rule in self.rules for _, mask in rule.mask or ())

    @property
    def key_id(self) -> str | None:
        """The fingerprint of the key, if one is used."""
        return fingerprint(self.mask_key) if self.mask_key is not None and self._hashes else None

    def wants(self, source: str) -> bool:
        """Whether the settings choose a source table."""
        if any(match_table(pattern, source) is not None for pattern in self.exclude):
            return False
        if not self.tables and not self.include:
            return True
        is_named = any(parse_source(name) == source for name in self.tables)
        return is_named or any(match_table(pattern, source) is not None for pattern in self.include)

    def choose(self, source: str) -> TableChoice:
        """The choice for a source table: its names, options and rules."""
        options = TableOptions(
            buckets=self.buckets,
            deletion_vectors=self.deletion_vectors,
            change_data_feed=self.change_data_feed,
            column_mapping=self.column_mapping,
        )
        return choose_table(
            source,
            self.rules,
            namespace=self.namespace,
            options=options,
            composites=self.composites,
            key_id=self.key_id,
            text_columns=self._text_columns(source),
        )

    def _text_columns(self, source: str) -> frozenset[str]:
        table, names = source_parts(source), set()
        for column in map(split_source, self.text_columns):
            schema, name, *rest = column if len(column) > 2 else ["public", *column]
            if [schema, name] == table:
                names.add(".".join(rest))  # a column's name may have dots without backticks around it
        return frozenset(names)

    def choice_value(self) -> dict[str, Any]:
        """The choice as the control table records it, without defaults."""
        value: dict[str, Any] = {
            "include": list(self.include),
            "exclude": list(self.exclude),
            "composites": "" if self.composites == "text" else self.composites,
            "rules": [rule.to_value() for rule in self.rules],
            "keyId": self.key_id,
        }
        return {key: item for key, item in value.items() if item}

    def check_same_choice(self, value: Mapping[str, Any]) -> None:
        """ConfigError if a capture was started with another choice, so that editing a file neither copies tables again
        nor reveals what was masked."""
        if value != self.choice_value():
            raise ConfigError(
                f"the settings of the capture {self.slot} choose other tables, columns, masks or names than it was "
                "begun with: dl cdc apply shows what that means and does it"
            )

    def with_rules_of(self, value: Mapping[str, Any]) -> CaptureSettings:
        """The same settings with the rules of a control table."""
        return replace(self, rules=parse_rules(value.get("rules", ())))

    def without_key_of(self, value: Mapping[str, Any]) -> CaptureSettings:
        """The same settings with the choice of a control table, for callers that mask nothing and need no key."""
        return replace(
            self,
            include=tuple(value.get("include", ())),
            exclude=tuple(value.get("exclude", ())),
            composites=value.get("composites", "text"),
            rules=parse_rules(value.get("rules", ())),
        )

    def with_choice(self, value: Mapping[str, Any]) -> CaptureSettings:
        """The same settings with the choice of a control table; ConfigError if it needs another key."""
        chosen = self.without_key_of(value)
        if chosen.key_id != value.get("keyId"):
            raise ConfigError("the capture masks by a hash with another key: start it with that mask_key")
        return chosen

    @property
    def chunk_pages(self) -> int:
        """Pages of a part of a copy, at the usual page size."""
        return self.chunk_bytes // _PAGE_BYTES

    @property
    def control_table(self) -> str:
        """The lake's table that has no rows, only the capture's progress and the records of its tables."""
        return f"{self.namespace or 'cdc'}.cdc_{self.slot}"

    def __repr__(self) -> str:
        return redact(f"CaptureSettings({self.source!r}, publication={self.publication!r}, slot={self.slot!r})")
