"""Restoring an older version takes nothing back that was handed out: identity values, row ids; on every engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltalakedb import Catalog, CatalogTransaction
from deltalakedb.log.checks.binding import HIGH_WATERMARK
from deltalakedb.log.protocol.actions import Metadata, Protocol
from tests.conformance.transacting import numbers, open_catalog


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(target, tmp_path, mirror_mode="off") as opened:
        yield opened


def metadata_of(tx: CatalogTransaction, name: str) -> Metadata:
    return tx._drafts.get(name).snapshot().metadata


def hand_out(catalog: Catalog, mark: int | None, *, step: int = 1, called: str = "id", **about: Any) -> None:
    """What a writer commits that generated values of the identity column up to `mark`."""
    with catalog.begin() as tx:
        metadata = metadata_of(tx, "t")
        schema = json.loads(metadata.schema_string)
        field = schema["fields"][0]
        field["name"] = called
        field["metadata"] |= {"delta.identity.start": 1, "delta.identity.step": step, **about}
        if mark is not None:
            field["metadata"][HIGH_WATERMARK] = mark
        tx.commit_actions("t", [replace(metadata, schema_string=json.dumps(schema))])


def marks(catalog: Catalog) -> dict[str, int | None]:
    with catalog.begin() as tx:
        schema = json.loads(metadata_of(tx, "t").schema_string)
    return {field["name"]: field["metadata"].get(HIGH_WATERMARK) for field in schema["fields"]}


@pytest.fixture
def identity(catalog: Catalog) -> Catalog:
    """`t` at version 1, which lets writers generate values."""
    catalog.create_table("t", "id long, city string")
    with catalog.begin() as tx:
        tx.commit_actions("t", [Protocol(1, 6)])
    return catalog


@pytest.mark.parametrize(
    ("step", "handed_out", "kept"),
    [
        (1, (10, 20), 20),
        (1, (20, 10), 20),
        (-2, (-10, -20), -20),
        (-2, (-20, -10), -20),
        (5, (None, 15), 15),
        (1, (2**53 + 1, 2**62), 2**62),
    ],
)
def test_identity_columns_stay_as_far_on_as_they_ever_were(
    identity: Catalog, step: int, handed_out: tuple[int | None, int], kept: int
) -> None:
    for mark in handed_out:
        hand_out(identity, mark, step=step)
    table = identity.table("t")
    table.restore(2)
    assert marks(identity) == {"id": kept, "city": None}
    table.restore(2)
    assert marks(identity) == {"id": kept, "city": None}, "again and again"


def test_a_column_that_was_renamed_since_is_the_same_column(identity: Catalog) -> None:
    mapped: dict[str, Any] = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    hand_out(identity, 10, **mapped)
    hand_out(identity, 20, called="number", **mapped)
    assert marks(identity) == {"number": 20, "city": None}
    identity.table("t").restore(2)
    assert marks(identity) == {"id": 20, "city": None}


def test_a_schema_without_identity_columns_comes_back_as_it_was(identity: Catalog) -> None:
    with identity.begin() as tx:
        before = metadata_of(tx, "t").schema_string
    hand_out(identity, 20)
    identity.table("t").restore(1)
    with identity.begin() as tx:
        assert metadata_of(tx, "t").schema_string == before, "there the column generates no values"


def row_ids(catalog: Catalog) -> tuple[int, list[int]]:
    table = catalog.table("t")
    mark = json.loads(table.domain_metadata()["delta.rowTracking"])["rowIdHighWaterMark"]
    return mark, sorted(table.files(["base_row_id"]).column("base_row_id").to_pylist())


def append(catalog: Catalog, *ids: int) -> None:
    with catalog.begin() as tx:
        tx.write("t", numbers(*ids), mode="append")


def test_row_ids_go_on_from_where_they_were(catalog: Catalog) -> None:
    catalog.create_table("t", "id long", properties={"delta.enableRowTracking": "true"})
    append(catalog, 1, 2)
    append(catalog, 3, 4, 5)
    assert row_ids(catalog) == (4, [0, 2])
    catalog.table("t").restore(1)
    assert row_ids(catalog) == (4, [0])
    append(catalog, 6)
    assert row_ids(catalog) == (5, [0, 5])


def test_row_ids_go_on_where_row_tracking_is_turned_on_again(catalog: Catalog) -> None:
    catalog.create_table("t", "id long")
    catalog.set_properties("t", {"delta.enableRowTracking": "true"})
    append(catalog, 1, 2)
    catalog.table("t").restore(0, protocol_downgrade_allowed=True)
    assert "rowTracking" not in (catalog.table("t").protocol().writer_features or ())
    catalog.set_properties("t", {"delta.enableRowTracking": "true"})
    append(catalog, 3)
    assert row_ids(catalog) == (2, [2])
