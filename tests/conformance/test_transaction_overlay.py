"""The law of own writes: what a transaction sees before its commit is what everybody sees after it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltalakedb import Catalog, DeltaTable
from deltalakedb.log.protocol.actions import (
    Action,
    AddFile,
    AppTransaction,
    DeletionVector,
    DomainMetadata,
    RemoveFile,
)
from tests.conformance.transacting import open_catalog
from tests.fixtures.sizes import every

DAYS = ["mon", "tue", None]
PREDICATES = ["id < 30", "id = 55", "day = 'mon'", "day is null", "id > 20 and day = 'tue'", "id < 5 or day = 'mon'"]
PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.feature.domainMetadata": "supported"}


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(target, tmp_path, mirror_mode="off") as opened:
        opened.create_table("t", "id long, day string", partition_by="day", properties=PROPERTIES)
        yield opened


class History:
    """Random commits that fit what is live."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._live: dict[str, AddFile] = {}
        self._made = 0

    def commit(self) -> list[Action]:
        actions: list[Action] = []
        for path in self._chance.sample(sorted(self._live), min(len(self._live), self._chance.randint(0, 2))):
            old = self._live[path]
            match self._chance.choice(["remove", "restate", "vector"]):
                case "remove":
                    actions.append(self._removal(self._live.pop(path)))
                case "restate":
                    self._live[path] = self._with_stats(old)
                    actions.append(self._live[path])
                case "vector":
                    vector = DeletionVector("u", f"{self._chance.getrandbits(60):020d}", 4, self._chance.randint(1, 3))
                    actions.append(self._removal(old))
                    self._live[path] = replace(old, deletion_vector=vector)
                    actions.append(self._live[path])
        for _ in range(self._chance.randint(0, 3)):
            self._made += 1
            add = self._with_stats(AddFile(f"f {self._made}%20\\x", {"day": self._chance.choice(DAYS)}, 7, 0, True))
            self._live[add.path] = add
            actions.append(add)
        if self._chance.random() < 0.5:
            actions.append(AppTransaction(self._chance.choice("ab"), self._made * 10 + len(actions) + 1))
        if self._chance.random() < 0.5:
            actions.append(DomainMetadata(self._chance.choice("xy"), "{}", self._chance.random() < 0.4))
        return actions or [DomainMetadata("z", "{}", False)]

    def _with_stats(self, add: AddFile) -> AddFile:
        low = self._chance.randint(0, 90)
        stats = {"numRecords": 10, "minValues": {"id": low}, "maxValues": {"id": low + 9}, "nullCount": {"id": 0}}
        # A file with a deletion vector must say how many rows it has; another one need not.
        known = add.deletion_vector is not None or self._chance.random() < 0.9
        return replace(add, stats=json.dumps(stats) if known else None)

    @staticmethod
    def _removal(add: AddFile) -> RemoveFile:
        return RemoveFile(add.path, True, 1, True, add.partition_values, add.size, deletion_vector=add.deletion_vector)


def seen(table: DeltaTable) -> dict[str, Any]:
    columns = ["path", "partition_values", "size", "stats", "deletion_vector"]
    order = [(column, "ascending") for column in columns]
    return {
        "version": table.version(),
        "files": table.files(columns).sort_by(order).to_pylist(),
        "totals": table.totals(),
        "plans": {
            text: sorted(table.plan(text, columns=["path"]).files.column("path").to_pylist()) for text in PREDICATES
        },
        "pruned": {text: table.plan(text).num_pruned for text in PREDICATES},
        "partitions": sorted(table.partitions(), key=str),
        "domains": table.domain_metadata(),
        "apps": [table.transaction_version(app) for app in "abc"],
        "schema": table.schema().names,
    }


@pytest.mark.parametrize("seed", every(3, range(6)))
def test_what_a_transaction_sees_is_what_it_makes_true(catalog: Catalog, seed: int) -> None:
    history = History(seed)
    for _ in range(3):
        with catalog.begin() as tx:
            for _ in range(random.Random(seed).randint(1, 4)):
                tx.commit_actions("t", history.commit(), read="table")
            before = seen(tx.table("t"))
        assert seen(catalog.table("t")) == before
