"""Any sequence of changes, cut into batches anywhere, leads to the rows that a plain model of the table has."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deltalakedb as dl
from deltalakedb.cdc.captured_table import CapturedTable
from tests.cdc.applying import Lake, Row, SourceTable, captured, counted, replayed

_VALUES = {"n": "double", "doc": "string", "note": "string"}
EXAMPLES = 12 if settings().max_examples < 100 else 300
_numbers = itertools.count()


@dataclass(frozen=True)
class Kind:
    """A table, and how its lake is made."""

    table: CapturedTable
    settings: dict[str, Any] = field(default_factory=dict)


KINDS = {
    "one key": Kind(captured({"id": "integer", **_VALUES}, ["id"])),
    "rewritten files": Kind(captured({"id": "long", **_VALUES}, ["id"]), {"deletion_vectors": False}),
    "two keys, mapped columns": Kind(
        captured({"a": "string", **_VALUES, "b": "integer"}, ["a", "b"]), {"column_mapping": True}
    ),
    "change data": Kind(captured({"id": "integer", **_VALUES}, ["id"]), {"change_data_feed": True}),
    "buckets": Kind(captured({"id": "string", **_VALUES}, ["id"]), {"buckets": 3, "change_data_feed": True}),
    "full identity": Kind(captured({"id": "integer", **_VALUES}, ["id"], identity="f")),
    "no key": Kind(captured({"a": "integer", **_VALUES}, [], identity="f"), {"change_data_feed": True}),
    "no key, rewritten": Kind(captured({"a": "integer", **_VALUES}, [], identity="f"), {"deletion_vectors": False}),
}

CHANGED: list[Row] = [
    {},
    {"n": math.nan},
    {"n": 1.5, "note": None},
    {"doc": None},
    {"doc": "b"},
    {"doc": "large a"},
    {"note": "large b"},
]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "insert", "update", "update", "update", "move", "swap", "delete", "commit"]),
        st.integers(0, 5),
        st.integers(0, 5),
        st.sampled_from(
            [{}, {"n": math.nan}, {"n": 1.5, "note": None}, {"doc": None}, {"doc": "large a"}, {"doc": "b"}]
        ),
    )
    | st.just(("truncate", 0, 0, {})),
    max_size=60,
)
CUTS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 3)), max_size=5)


def key_of(table: CapturedTable, number: int) -> Row:
    """The key of a number, in the types of the table."""
    if len(table.key) == 2:
        return {"a": f"k{number // 2}", "b": number % 2}
    name = table.key[0] if table.key else "a"
    column = table.column(name)
    return {name: f"k{number}" if column is not None and str(column.type) == "string" else number}


def run_step(source: SourceTable, step: tuple[str, int, int, Row]) -> None:
    """A step as far as it can be done on the rows there are."""
    what, first, second, values = step
    table, rows = source.table, source.rows
    if what in ("commit", "truncate"):
        getattr(source, what)()
        return
    place = first % len(rows) if rows else None
    key = key_of(table, second)
    is_free = not table.key or all(any(row[name] != key[name] for name in key) for row in rows)
    if what == "insert" and is_free:
        source.insert({**dict.fromkeys(column.name for column in table.columns), **key, **values})
    elif place is None:
        return
    elif what == "update":
        source.update(place, values)
    elif what == "move" and is_free:
        source.update(place, {**key, **values})
    elif what == "swap" and len(rows) > 1:
        swap(source, place, (place + 1) % len(rows), values)
    elif what == "delete":
        source.delete(place)


def swap(source: SourceTable, one: int, other: int, values: Row) -> None:
    """Two rows change keys, by way of a third one: a key is of one row at a time."""
    names = list(key_of(source.table, 0))
    mine = {name: source.rows[one][name] for name in names}
    others = {name: source.rows[other][name] for name in names}
    source.update(one, key_of(source.table, 98))
    source.update(other, mine)
    source.update(one, {**others, **values})


def check_run(catalog: dl.Catalog, kind: Kind, steps: Sequence[Any], cuts: Sequence[tuple[int, int]]) -> None:
    lake, source = Lake(catalog, [kind.table], **kind.settings), SourceTable(kind.table)
    names = [column.name for column in kind.table.columns]
    at = dict(cuts)
    for number, step in enumerate([*steps, None]):
        if number in at or step is None:
            lake.apply({kind.table.source: source.take_changes()}, at.get(number, 1))
            assert lake.rows(kind.table) == counted(source.rows, names)
        if step is not None:
            run_step(source, step)
    if kind.settings.get("change_data_feed"):
        assert replayed(lake, kind.table) == lake.rows(kind.table)


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=EXAMPLES)
@given(steps=STEPS, cuts=CUTS)
def test_a_table_has_the_rows_of_its_source_after_every_batch(
    tmp_path: Path, name: str, steps: list[Any], cuts: list[tuple[int, int]]
) -> None:
    folder = tmp_path / str(next(_numbers))
    folder.mkdir()
    with dl.connect(folder / "catalog.db", warehouse=str(folder / "lake")) as catalog:
        check_run(catalog, KINDS[name], steps, cuts)


ALL_OF_IT = [
    ("insert", 0, 0, {"doc": "large a"}),
    ("insert", 0, 1, {"doc": "large b"}),
    ("update", 1, 0, {"n": 1.5}),
    ("commit", 0, 0, {}),
    ("swap", 0, 1, {"note": None}),
    ("delete", 0, 0, {}),
    ("insert", 0, 3, {}),
    ("truncate", 0, 0, {}),
    ("insert", 0, 2, {"doc": "large c"}),
    ("move", 0, 5, {}),
]


@pytest.mark.parametrize("engine", ["duckdb", "postgres"])
@pytest.mark.parametrize("name", ["one key", "no key"])
def test_the_catalog_may_be_in_any_database(
    tmp_path: Path, engine: str, name: str, request: pytest.FixtureRequest
) -> None:
    address = f"deltasql://duckdb/{tmp_path}/catalog.duckdb"
    if engine == "postgres":
        words = dict(part.split("=", 1) for part in str(request.getfixturevalue("postgres_dsn")).split())
        address = f"postgresql://{words['user']}@/{words['dbname']}?host={words['host']}&port={words['port']}"
    with dl.connect(address, warehouse=str(tmp_path / "lake")) as catalog:
        check_run(catalog, KINDS[name], ALL_OF_IT, [(3, 1), (6, 2), (9, 1)])
