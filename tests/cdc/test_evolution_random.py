"""Random ALTER TABLE among random rows, captured at random moments: the lake equals the source, or says why not."""

import random

import pytest
from psycopg import sql

from tests.cdc.conftest import Lake, Source
from tests.cdc.evolving import evolving

TYPES = ("smallint", "int", "bigint", "real", "text", "varchar(10)", "numeric(8, 2)", "date", "boolean", "int[]")
VALUES = {
    "smallint": "{n}", "int": "{n}", "bigint": "{n}", "real": "{n}.5", "double precision": "{n}.25", "text": "'t{n}'",
    "varchar(10)": "'v{n}'", "varchar(30)": "'w{n}'", "numeric(8, 2)": "{n}.5", "numeric(12, 4)": "{n}.125",
    "date": "date '2026-01-01' + {n}", "boolean": "{n} % 2 = 0", "int[]": "array[{n}, null]",
    "bigint[]": "array[{n}::bigint]",
}  # fmt: skip
WIDER = {
    "smallint": "int", "int": "bigint", "real": "double precision", "varchar(10)": "varchar(30)",
    "varchar(30)": "text", "numeric(8, 2)": "numeric(12, 4)", "int[]": "bigint[]",
}  # fmt: skip


class Altered:
    """A source table that is changed at random, and what is known of its columns."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.columns = {"a": "int", "b": "text"}
        self.names = (f"c{number}" for number in range(1000))
        self.keys = 0

    def statements(self) -> list[str]:
        """Some of one transaction."""
        return [self.statement() for _ in range(self.rng.randint(1, 4))]

    def statement(self) -> str:
        kind = self.rng.choices(
            ("insert", "update", "delete", "move", "add", "drop", "rename", "widen"), (6, 4, 2, 1, 2, 1, 1, 1)
        )[0]
        return str(getattr(self, kind)())

    def insert(self) -> str:
        self.keys += 1
        names = ["id", *self.columns]
        values = [str(self.keys), *(self.value(type_) for type_ in self.columns.values())]
        return f"insert into orders ({', '.join(names)}) values ({', '.join(values)})"

    def update(self) -> str:
        if not self.columns:
            return "select 1"
        name = self.rng.choice(list(self.columns))
        return f"update orders set {name} = {self.value(self.columns[name])} where id % 5 = {self.rng.randrange(5)}"

    def delete(self) -> str:
        return f"delete from orders where id = {self.rng.randint(1, self.keys + 1)}"

    def move(self) -> str:
        return f"update orders set id = id + 100000 where id = {self.rng.randint(1, self.keys + 1)}"

    def add(self) -> str:
        name, type_ = next(self.names), self.rng.choice(TYPES)
        self.columns[name] = type_
        default = f" default {self.constant(type_)}" if self.rng.random() < 0.5 else ""
        return f"alter table orders add {name} {type_}{default}"

    def drop(self) -> str:
        if len(self.columns) < 2:
            return self.add()
        name = self.rng.choice(list(self.columns))
        del self.columns[name]
        return f"alter table orders drop {name}"

    def rename(self) -> str:
        if not self.columns:
            return self.add()
        old, new = self.rng.choice(list(self.columns)), next(self.names)
        self.columns = {new if name == old else name: type_ for name, type_ in self.columns.items()}
        return f"alter table orders rename {old} to {new}"

    def widen(self) -> str:
        able = [name for name, type_ in self.columns.items() if type_ in WIDER]
        if not able:
            return self.insert()
        name = self.rng.choice(able)
        self.columns[name] = WIDER[self.columns[name]]
        return f"alter table orders alter {name} type {self.columns[name]}"

    def value(self, type_: str) -> str:
        return "null" if self.rng.random() < 0.2 else self.constant(type_)

    def constant(self, type_: str) -> str:
        return VALUES[type_].format(n=self.rng.randint(0, 99))


@pytest.mark.parametrize("seed", range(3))
def test_a_table_that_is_altered_at_random_equals_its_source(lake: Lake, source: Source, seed: int) -> None:
    """With column mapping, and the lake never long behind, there is nothing that cannot be followed."""
    altered = Altered(seed)
    orders = "create table orders (id bigint primary key, a int, b text)"
    full = "alter table orders replica identity full" if seed % 3 == 2 else "select 1"
    with evolving(lake, source, orders, full, column_mapping=True) as capture, source.connect() as connection:
        for _ in range(14):
            statements = altered.statements()
            altering = sum(statement.startswith("alter") for statement in statements)
            with connection.transaction():
                for statement in statements:
                    connection.execute(sql.SQL(statement))
            # What is altered twice and read only then may be ambiguous.
            if altering or altered.rng.random() < 0.3:
                capture.settle()
                capture.check_equal(source)
        capture.settle()
        capture.check_equal(source)


@pytest.mark.parametrize("seed", range(2))
def test_a_lake_that_is_behind_equals_the_source_or_says_why_not(lake: Lake, source: Source, seed: int) -> None:
    altered = Altered(100 + seed)
    orders = "create table orders (id bigint primary key, a int, b text)"
    mapped = seed % 2 == 0
    with evolving(lake, source, orders, column_mapping=mapped) as capture, source.connect() as connection:
        for _ in range(5):
            for _ in range(4):
                with connection.transaction():
                    for statement in altered.statements():
                        connection.execute(sql.SQL(statement))
            capture.settle()
            if capture.table().stage == "stopped":
                assert "dl cdc resnapshot public.orders" in (capture.table().reason or "")
                assert (capture.table().stopped_lsn or 0) > 0
                break
            capture.check_equal(source)
