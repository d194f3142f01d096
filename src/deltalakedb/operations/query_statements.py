"""Owns the statements of `QueryBuilder` beside queries: names for queries, plans, and what tables are made of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from deltalakedb.operations.query_names import rust_name

_NAME: Final = r'(?:"([^"]+)"|(\w+))'
_DESCRIBE: Final = re.compile(rf"\s*desc(?:ribe)?\s+(?:table\s+)?{_NAME}\s*;?\s*", re.IGNORECASE)
_CREATE: Final = re.compile(
    rf"\s*create\s+(or\s+replace\s+)?(?:table|view)\s+(?:if\s+not\s+exists\s+)?{_NAME}\s+as\s+(.*)",
    re.IGNORECASE | re.DOTALL,
)
_DROP: Final = re.compile(rf"\s*drop\s+(?:table|view)\s+(if\s+exists\s+)?{_NAME}\s*;?\s*", re.IGNORECASE)
_EXPLAIN: Final = re.compile(r"\s*explain\s+(analyze\s+)?(?:verbose\s+)?(.*)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Describe:
    """`describe t`."""

    name: str


@dataclass(frozen=True, slots=True)
class Create:
    """`create view v as select ...`; a table of a session is the same, as no table of it ever changes."""

    name: str
    query: str
    replaces: bool


@dataclass(frozen=True, slots=True)
class Drop:
    """`drop view v`."""

    name: str
    may_be_missing: bool


@dataclass(frozen=True, slots=True)
class Explain:
    """`explain select ...`."""

    query: str
    runs: bool
    """Whether the query is run, for its times."""


def read_statement(sql: str) -> Describe | Create | Drop | Explain | None:
    """Return what a text asks for beside queries; None for a query. Names without quotes are in lower case."""
    if match := _DESCRIBE.fullmatch(sql):
        return Describe(match[1] or match[2].lower())
    if match := _CREATE.fullmatch(sql):
        return Create(match[2] or match[3].lower(), match[4], bool(match[1]))
    if match := _DROP.fullmatch(sql):
        return Drop(match[2] or match[3].lower(), bool(match[1]))
    if match := _EXPLAIN.fullmatch(sql):
        return Explain(match[2], bool(match[1]))
    return None


def describe_columns(schema: pa.Schema) -> pa.Table:
    """What `describe` tells of a table: names, types and whether they may be null."""
    texts = [(item.name, rust_name(item.type), "YES" if item.nullable else "NO") for item in schema]
    return _texts(("column_name", "data_type", "is_nullable"), texts)


def show_plan(kind: str, plan: str) -> pa.Table:
    """What `explain` tells of a query."""
    return _texts(("plan_type", "plan"), [(kind, plan)])


def _texts(names: Sequence[str], rows: Sequence[Sequence[str]]) -> pa.Table:
    fields = pa.schema([pa.field(name, pa.string(), nullable=False) for name in names])
    return pa.table([[row[place] for row in rows] for place in range(len(names))], schema=fields)
