"""Random statements on a table: each is chosen by a seed and by what the table is by then, and means the same to both.

A `Step` is a kind and a seed, so that a failing sequence shrinks to the few steps that matter and can be run again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from tests.api.both import Both, Library
from tests.api.judging import check_same_rows, to_plain

BASE = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("part", pa.string()),
        pa.field("n", pa.int32()),
        pa.field("x", pa.float64()),
        pa.field("txt", pa.string()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("flag", pa.bool_()),
    ]
)
ADDED = (pa.int64(), pa.string(), pa.float64(), pa.date32())
WORDS = ("", "a", "A", "b%", "_c", "it's", "ünï", "zz", "a b", "back\\slash", '"q"')


@dataclass(frozen=True, slots=True)
class Step:
    """One statement to come; what it says is drawn from its seed."""

    kind: str
    seed: int


@dataclass
class Life:
    """Two tables that live through the same steps, and the versions they had after each."""

    both: Both
    partition_by: list[str] = field(default_factory=list)
    schema: pa.Schema = BASE
    kept: list[tuple[int, int, pa.Schema]] = field(default_factory=list)

    def begin(self, configuration: dict[str, str], ours_only: dict[str, str]) -> None:
        rows = [random_rows(Random(seed), self.schema, 4) for seed in (1, 2)]
        self.both.seed(*rows, partition_by=self.partition_by, configuration=configuration, ours_only=ours_only)
        self.keep()

    def keep(self) -> None:
        theirs, ours = (library.table().version() for library in self.both.libraries)
        self.kept.append((theirs, ours, self.schema))

    def run(self, step: Step) -> None:
        """Do it on both; same outcome, and the same rows after it."""
        STEPS[step.kind](self, Random(step.seed))
        self.both.same_rows(ordered=False)  # a new column makes `deltalake` move those of the partitioning
        self.keep()

    def do(self, call: Callable[[Library], Any]) -> bool:
        """Whether both did it; where one fails so must the other, with the same class of error."""
        return self.both.same(call, warned=False).error is None


# ---- rows and conditions


def random_rows(random: Random, schema: pa.Schema, count: int, *, ids: list[int] | None = None) -> pa.Table:
    chosen = ids if ids is not None else [random.randrange(12) for _ in range(count)]
    columns = {
        name: chosen if name == "id" else [_value(random, schema.field(name).type) for _ in chosen]
        for name in schema.names
    }
    # An empty text is no value of a partition column: the protocol takes it for null, `deltalake` only sometimes.
    columns["part"] = [None if text == "" else text for text in columns["part"]]
    return pa.table(columns, schema=schema)


def _value(random: Random, kind: Any) -> Any:
    if random.random() < 0.15:
        return None
    if pa.types.is_string(kind):
        return random.choice(WORDS)
    if pa.types.is_boolean(kind):
        return random.random() < 0.5
    if pa.types.is_floating(kind):
        return random.choice((0.0, -1.5, 2.25, 1e300, -7.0, 3.0))
    if pa.types.is_decimal(kind):
        return Decimal(random.randrange(-500, 500)) / 100
    if pa.types.is_date(kind):
        return date(2024, 2, 28) + timedelta(days=random.randrange(4))
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat("2024-03-01T00:00:00+00:00") + timedelta(microseconds=random.randrange(4) * 17)
    return random.randrange(-3, 8)


def random_condition(random: Random, schema: pa.Schema, prefix: str = "") -> str:
    """A condition in SQL that DataFusion and DuckDB read alike."""
    word = random.choice(("a", "zz", "it''s", "A"))
    kinds = [
        f"{prefix}id = {random.randrange(12)}",
        f"{prefix}id in ({random.randrange(12)}, {random.randrange(12)})",
        f"{prefix}id between {random.randrange(6)} and {6 + random.randrange(6)}",
        f"{prefix}n > {random.randrange(-3, 6)}",
        f"{prefix}n is null",
        f"{prefix}x <= 2.25",
        f"{prefix}x is not null and {prefix}x < 0",
        f"{prefix}txt = '{word}'",
        f"{prefix}txt <> '{word}'",
        f"{prefix}txt like 'a%'",
        f"not ({prefix}flag)",
        f"{prefix}day >= date '2024-02-29'",
        f"{prefix}at is null",
        f"{prefix}price > 1.25",
        f"{prefix}part = '{word}'",
        f"{prefix}part is null",
        f"{prefix}id + coalesce({prefix}n, 0) > 6",
        f"lower({prefix}txt) = 'a'",
        f"case when {prefix}flag then {prefix}id > 4 else {prefix}id < 2 end",
    ]
    kinds = [kind for kind in kinds if _names(kind, prefix) <= set(schema.names)]
    first, second = random.choice(kinds), random.choice(kinds)
    return random.choice((first, first, f"({first}) and ({second})", f"({first}) or ({second})", f"not ({first})"))


def _names(condition: str, prefix: str) -> set[str]:
    words = condition.replace("(", " ").replace(")", " ").split()
    bare = {word.removeprefix(prefix) for word in words}
    return bare & set(BASE.names)


def random_assignments(random: Random, schema: pa.Schema, prefix: str = "") -> dict[str, str]:
    """New values as SQL, of the columns' own types."""
    choices = {
        "n": f"{prefix}n + 1",
        "x": f"{prefix}x * 2",
        "txt": f"upper({prefix}txt)",
        "day": "date '2024-12-24'",
        "price": "cast(3.5 as decimal(10, 2))",
        "flag": f"not {prefix}flag",
        "part": "'moved'",
    }
    there = [name for name in choices if name in schema.names]
    return {name: choices[name] for name in random.sample(there, k=random.randint(1, 2))}


# ---- statements


def append(life: Life, random: Random) -> None:
    rows = random_rows(random, life.schema, random.randint(1, 6))
    life.do(lambda lib: lib.write(rows, mode="append"))


def append_with_a_new_column(life: Life, random: Random) -> None:
    schema = _with_another(life.schema, random)
    rows = random_rows(random, schema, 3)
    if life.do(lambda lib: lib.write(rows, mode="append", schema_mode="merge")):
        life.schema = schema


def append_fewer_columns(life: Life, random: Random) -> None:
    names = [name for name in life.schema.names if name in ("id", "part") or random.random() < 0.6]
    rows = random_rows(random, pa.schema([life.schema.field(name) for name in names]), 2)
    life.do(lambda lib: lib.write(rows, mode="append", schema_mode="merge"))


def overwrite(life: Life, random: Random) -> None:
    rows = random_rows(random, life.schema, random.randint(1, 8))
    life.do(lambda lib: lib.write(rows, mode="overwrite"))


def overwrite_with_another_schema(life: Life, random: Random) -> None:
    schema = _with_another(BASE, random)
    rows = random_rows(random, schema, 5)
    if life.do(lambda lib: lib.write(rows, mode="overwrite", schema_mode="overwrite")):
        life.schema = schema


def overwrite_where(life: Life, random: Random) -> None:
    """Rows that match the condition are replaced; the new ones match it too, or the statement fails."""
    number = random.randrange(12)
    rows = random_rows(random, life.schema, 2, ids=[number, number + random.choice((0, 0, 0, 1))])
    life.do(lambda lib: lib.write(rows, mode="overwrite", predicate=f"id = {number}"))


def delete(life: Life, random: Random) -> None:
    condition = None if random.random() < 0.05 else random_condition(random, life.schema)
    life.do(lambda lib: lib.table().delete(condition))


def update(life: Life, random: Random) -> None:
    condition = None if random.random() < 0.2 else random_condition(random, life.schema)
    assignments = random_assignments(random, life.schema)
    life.do(lambda lib: lib.table().update(updates=assignments, predicate=condition))


def update_with_values(life: Life, random: Random) -> None:
    values = {"n": 42, "txt": "new", "x": 0.5, "flag": True}
    chosen = {name: values[name] for name in random.sample([*values], k=2) if name in life.schema.names}
    condition = random_condition(random, life.schema)
    life.do(lambda lib: lib.table().update(new_values=chosen, predicate=condition))


def merge(life: Life, random: Random) -> None:
    """Source rows have one id each; any mixture of clauses."""
    ids = random.sample(range(14), k=random.randint(1, 6))
    rows = random_rows(random, life.schema, 0, ids=ids)
    on = random.choice(("t.id = s.id", "t.id = s.id", "t.id = s.id and t.n > 0"))
    clauses = _clauses(life, random)

    def run(lib: Library) -> Any:
        merger = lib.table().merge(rows, on, source_alias="s", target_alias="t")
        for name, arguments in clauses:
            merger = getattr(merger, name)(**arguments)
        return merger.execute()

    life.do(run)


def merge_with_a_new_column(life: Life, random: Random) -> None:
    schema = _with_another(life.schema, random)
    rows = random_rows(random, schema, 0, ids=random.sample(range(14), k=4))

    def run(lib: Library) -> Any:
        merger = lib.table().merge(rows, "t.id = s.id", source_alias="s", target_alias="t", merge_schema=True)
        return merger.when_matched_update_all().when_not_matched_insert_all().execute()

    if life.do(run):
        life.schema = schema


def _clauses(life: Life, random: Random) -> list[tuple[str, dict[str, Any]]]:
    condition = random_condition(random, life.schema, "t.")
    matched: list[tuple[str, dict[str, Any]]] = [
        ("when_matched_update_all", {}),
        ("when_matched_update_all", {"predicate": "s.n > t.n"}),
        ("when_matched_update", {"updates": random_assignments(random, life.schema, "s."), "predicate": condition}),
        ("when_matched_delete", {"predicate": condition}),
        ("when_matched_delete", {}),
    ]
    not_matched: list[tuple[str, dict[str, Any]]] = [
        ("when_not_matched_insert_all", {}),
        ("when_not_matched_insert_all", {"predicate": "s.id > 5"}),
        ("when_not_matched_insert", {"updates": {"id": "s.id", "part": "s.part", "n": "s.n"}}),
    ]
    by_source: list[tuple[str, dict[str, Any]]] = [
        ("when_not_matched_by_source_delete", {"predicate": condition}),
        ("when_not_matched_by_source_update", {"updates": {"n": "t.n + 100"}, "predicate": condition}),
    ]
    chosen = random.sample(matched, k=random.choice((0, 1, 1, 2))) + random.sample(not_matched, k=random.choice((0, 1)))
    chosen += random.sample(by_source, k=random.choice((0, 0, 1)))
    return chosen or [not_matched[0]]


def add_column(life: Life, random: Random) -> None:
    schema = _with_another(life.schema, random)
    added = schema.field(len(schema) - 1)
    kinds = {pa.int64(): "long", pa.string(): "string", pa.float64(): "double", pa.date32(): "date"}

    def run(lib: Library) -> Any:
        kind = lib.find("schema.PrimitiveType")(kinds[added.type])
        return lib.table().alter.add_columns([lib.module.Field(added.name, kind)])

    if life.do(run):
        life.schema = schema


def compact(life: Life, random: Random) -> None:  # noqa: ARG001  nothing of it is by chance
    life.do(lambda lib: lib.table().optimize.compact())


def z_order(life: Life, random: Random) -> None:
    columns = random.sample(["id", "n", "x", "txt"], k=2)
    life.do(lambda lib: lib.table().optimize.z_order(columns))


def restore(life: Life, random: Random) -> None:
    theirs, ours, schema = random.choice(life.kept)
    if life.do(lambda lib: lib.table().restore(ours if lib.is_ours else theirs)):
        life.schema = schema


def travel(life: Life, random: Random) -> None:
    """An earlier version is as it was."""
    theirs, ours, _ = random.choice(life.kept)
    found = [_rows_at(lib, ours if lib.is_ours else theirs) for lib in life.both.libraries]
    check_same_rows(found[0], found[1], "an earlier version", ordered=False)


def _rows_at(lib: Library, version: int) -> pa.Table:
    table = lib.table()
    table.load_as_version(version)
    return to_plain(table.to_pyarrow_table() if lib.is_ours else table.scan())


def _with_another(schema: pa.Schema, random: Random) -> pa.Schema:
    return schema.append(pa.field(f"more{len(schema)}_{random.randrange(1000)}", random.choice(ADDED)))


STEPS: dict[str, Callable[[Life, Random], None]] = {
    "append": append,
    "append with a new column": append_with_a_new_column,
    "append fewer columns": append_fewer_columns,
    "overwrite": overwrite,
    "overwrite with another schema": overwrite_with_another_schema,
    "overwrite where": overwrite_where,
    "delete": delete,
    "update": update,
    "update with values": update_with_values,
    "merge": merge,
    "merge with a new column": merge_with_a_new_column,
    "add column": add_column,
    "compact": compact,
    "z-order": z_order,
    "restore": restore,
    "travel": travel,
}
OFTEN = ("append", "delete", "update", "merge", "merge", "delete", "update")
"""What changes rows one by one is drawn more often than what changes all of them."""
