"""Any history of an Iceberg table: every reader reads the rows of its mirror, or refuses."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform, TruncateTransform
from pyiceberg.types import IntegerType, LongType, PrimitiveType, StringType

from deltalakedb import Catalog
from tests.fixtures.sizes import sized
from tests.iceberg.mirror.deleting import delete_by_vectors, delete_positions, upgrade
from tests.iceberg.mirror.judging import check_every_commit, check_lenient

STEPS = 14
START = pa.schema([("id", pa.int64()), ("s", pa.string()), ("n", pa.int32())])
NAMES = ("s", "n", "m", "extra", "note")
TEXTS = (None, "", "a", "b", "a b", "ä/%", "long " * 20)


class History:
    """One table, changed at random."""

    def __init__(self, catalog: Catalog, seed: int) -> None:
        self.random = Random(seed)
        self.catalog = catalog
        self.table = catalog.iceberg().create_table("shop.t", START)
        self.last_id = 0
        self.version = 2
        self.is_partitioned = False

    def step(self) -> None:
        steps = {
            self.append: 5,
            self.delete: 2,
            self.overwrite: 1,
            self.add_column: 1,
            self.drop_column: 1,
            self.rename_column: 1,
            self.promote: 1,
            self.partition: 1,
            self.delete_rows: 3,
        }
        (chosen,) = self.random.choices(list(steps), list(steps.values()))
        chosen()
        self.table.refresh()

    def rows(self) -> pa.Table:
        schema = schema_to_pyarrow(self.table.schema(), include_field_ids=False)
        count = self.random.randint(1, 6)
        columns = [pa.array(self._values(item, count), item.type) for item in schema]
        return pa.Table.from_arrays(columns, schema=schema)

    def _values(self, item: pa.Field, count: int) -> list[Any]:
        if item.name == "id":
            self.last_id += count
            return list(range(self.last_id - count, self.last_id))
        if pa.types.is_integer(item.type):
            return [self.random.choice((None, -1, 7, 2**31 - 1)) for _ in range(count)]
        return [self.random.choice(TEXTS) for _ in range(count)]

    def append(self) -> None:
        if self.version == 2:  # PyIceberg writes no manifests of version 3
            self.table.append(self.rows())

    def delete(self) -> None:
        if self.version == 2:
            self.table.delete(f"id >= {self.random.randint(0, self.last_id)} and id < {self.last_id + 1}")

    def overwrite(self) -> None:
        if self.version == 2:
            self.table.overwrite(self.rows())

    def _others(self) -> list[Any]:
        partitioned = {item.source_id for spec in self.table.specs().values() for item in spec.fields}
        fields = self.table.schema().fields
        return [item for item in fields if item.name != "id" and item.field_id not in partitioned]

    def _free_name(self) -> str | None:
        free = [name for name in NAMES if name not in self.table.schema().column_names]
        return self.random.choice(free) if free else None

    def add_column(self) -> None:
        if name := self._free_name():
            kind: PrimitiveType = self.random.choice((StringType(), IntegerType()))
            with self.table.update_schema() as update:
                update.add_column(name, kind)

    def drop_column(self) -> None:
        if others := self._others():
            with self.table.update_schema() as update:
                update.delete_column(self.random.choice(others).name)

    def rename_column(self) -> None:
        name, others = self._free_name(), self._others()
        if name and others:
            with self.table.update_schema() as update:
                update.rename_column(self.random.choice(others).name, name)

    def promote(self) -> None:
        if small := [item for item in self._others() if isinstance(item.field_type, IntegerType)]:
            with self.table.update_schema() as update:
                update.update_column(small[0].name, LongType())

    def partition(self) -> None:
        with self.table.update_spec() as spec:
            for item in self.table.spec().fields:
                spec.remove_field(item.name)
        others = self._others()
        if not others or self.random.random() < 0.3:
            return
        item, self.is_partitioned = self.random.choice(others), True
        used = {field.name for spec in self.table.specs().values() for field in spec.fields}
        with self.table.update_spec() as spec:
            if item.name not in used and self.random.random() < 0.6:
                spec.add_field(item.name, IdentityTransform(), item.name)
            else:
                transform: Transform[Any, Any] = self.random.choice((BucketTransform(2), TruncateTransform(2)))
                spec.add_field(item.name, transform, f"p{self.random.randrange(10**6)}")

    def delete_rows(self) -> None:
        """Position deletes; from the first vectors on the table has version 3, and nothing but vectors."""
        tasks = list(self.table.scan().plan_files())
        if self.is_partitioned or not tasks:
            return
        if self.version == 2 and self.random.random() < 0.15 and not any(task.delete_files for task in tasks):
            upgrade(self.catalog, "shop.t")
            self.version = 3
        if self.version == 3:
            tasks = [task for task in tasks if not task.delete_files]
        chosen = self.random.sample(tasks, min(len(tasks), 2))
        positions = {
            task.file.file_path: sorted(self.random.sample(range(task.file.record_count), 1)) for task in chosen
        }
        if positions:
            delete = delete_by_vectors if self.version == 3 else delete_positions
            delete(self.catalog, positions)


@pytest.mark.parametrize("seed", range(sized(6, 60)))
def test_readers_agree_after_any_history(catalog: Catalog, seed: int) -> None:
    history = History(catalog, seed)
    for _ in range(STEPS):
        history.step()
        if history.random.random() < 0.4:
            check_lenient(catalog)
    check_lenient(catalog)
    check_every_commit(catalog)
