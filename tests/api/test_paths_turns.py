"""Both libraries change one folder in turn, statement by statement: each finds what the other left."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import deltalakedb as dl
from tests.fixtures.sizes import sized

Rows = dict[int, tuple[int, str]]
"""A table of unique ids: value and partition."""

LIBRARIES: tuple[ModuleType, ...] = (dl, deltalake)


def data(rows: Rows) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(list(rows), pa.int64()),
            "value": pa.array([value for value, _ in rows.values()], pa.int64()),
            "part": pa.array([part for _, part in rows.values()], pa.string()),
        }
    )


def read(library: Any, place: Path) -> Rows:
    table = library.DeltaTable(place).to_pyarrow_table().to_pylist()
    assert len({row["id"] for row in table}) == len(table)
    return {row["id"]: (row["value"], row["part"]) for row in table}


class Turns:
    """What the table must hold, and statements that keep it so."""

    def __init__(self, place: Path, seed: int) -> None:
        self.place = place
        self.chance = random.Random(seed)
        self.rows: Rows = {}
        self.versions: list[Rows] = []

    def fresh(self, count: int) -> Rows:
        start = max(self.rows, default=0) + 1
        return {start + n: (self.chance.randrange(50), self.chance.choice("abc")) for n in range(count)}

    def append(self, library: Any) -> None:
        new = self.fresh(self.chance.randrange(1, 6))
        library.write_deltalake(self.place, data(new), mode="append", partition_by=["part"])
        self.rows = {**self.rows, **new}

    def overwrite_part(self, library: Any) -> None:
        new = {key: (value, "a") for key, (value, _) in self.fresh(2).items()}
        library.write_deltalake(self.place, data(new), mode="overwrite", predicate="part = 'a'")
        self.rows = {key: row for key, row in self.rows.items() if row[1] != "a"} | new

    def delete(self, library: Any) -> None:
        bound = self.chance.randrange(50)
        library.DeltaTable(self.place).delete(f"value < {bound} and part = 'b'")
        self.rows = {key: row for key, row in self.rows.items() if not (row[0] < bound and row[1] == "b")}

    def update(self, library: Any) -> None:
        library.DeltaTable(self.place).update(updates={"value": "value + 1"}, predicate="part = 'c'")
        self.rows = {key: (row[0] + (row[1] == "c"), row[1]) for key, row in self.rows.items()}

    def merge(self, library: Any) -> None:
        known = self.chance.sample(sorted(self.rows), min(2, len(self.rows)))
        source = {key: (1000, self.rows[key][1]) for key in known} | self.fresh(1)
        merger = library.DeltaTable(self.place).merge(data(source), "s.id = t.id", source_alias="s", target_alias="t")
        merger.when_matched_update(updates={"value": "s.value"}).when_not_matched_insert_all().execute()
        self.rows = {**self.rows, **source}

    def compact(self, library: Any) -> None:
        library.DeltaTable(self.place).optimize.compact()

    def checkpoint(self, library: Any) -> None:
        library.DeltaTable(self.place).create_checkpoint()

    def restore(self, library: Any) -> None:
        if len(self.versions) < 2:
            return  # `deltalake` restores no table to the version it has
        version = self.chance.randrange(len(self.versions) - 1)
        library.DeltaTable(self.place).restore(version)
        self.rows = self.versions[version]

    def note_versions(self) -> None:
        """A statement that has nothing to do makes no version."""
        newest = deltalake.DeltaTable(self.place).version()
        self.versions += [self.rows] * (newest + 1 - len(self.versions))


@pytest.mark.parametrize("seed", range(sized(2, 12)))
def test_statements_of_both_in_turn_leave_what_they_say(tmp_path: Path, seed: int) -> None:
    turns = Turns(tmp_path / "t", seed)
    turns.append(LIBRARIES[seed % 2])
    turns.note_versions()
    kinds: list[Callable[[Any], None]] = [
        turns.append, turns.append, turns.overwrite_part, turns.delete, turns.update, turns.merge, turns.compact,
        turns.checkpoint, turns.restore,
    ]  # fmt: skip
    for _ in range(sized(16, 25)):
        step, library = turns.chance.choice(kinds), turns.chance.choice(LIBRARIES)
        step(library)
        turns.note_versions()
        told = f"{library.__name__}: {step.__name__}"
        assert read(dl, turns.place) == turns.rows, told
        assert read(deltalake, turns.place) == turns.rows, told
    versions = {table.version() for table in (dl.DeltaTable(turns.place), deltalake.DeltaTable(turns.place))}
    assert versions == {len(turns.versions) - 1}
    for version in turns.chance.sample(range(len(turns.versions)), 3):
        old = dl.DeltaTable(turns.place, version=version).to_pyarrow_table()
        assert old.num_rows == len(turns.versions[version])


def test_history_and_metrics_have_the_keys_that_deltalake_gives_them(tmp_path: Path) -> None:
    rows: Rows = {1: (1, "a"), 2: (2, "b"), 3: (3, "c")}
    seen: dict[str, list[Any]] = {}
    for library in LIBRARIES:
        place = tmp_path / library.__name__
        library.write_deltalake(place, data(rows), partition_by=["part"])
        table = library.DeltaTable(place)
        told = [table.delete("id = 1"), table.update(updates={"value": "9"}, predicate="id = 2")]
        entries = table.history()
        seen[library.__name__] = [
            [sorted(metrics) for metrics in told],
            [entry["operation"] for entry in entries],
            [sorted(entry["operationMetrics"]) for entry in entries],
            [entry["operationParameters"] for entry in entries],
            [entry["version"] for entry in entries],
        ]
        assert all(isinstance(entry["operationMetrics"]["execution_time_ms"], int) for entry in entries)
    assert seen["deltalakedb"] == seen["deltalake"]
