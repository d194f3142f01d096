"""One transaction over Delta tables, Iceberg tables and views: all of it, or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError

from deltalakedb import Catalog
from deltalakedb.exceptions import DeltaError, NotWritableError, VersionTakenError
from tests.conformance.lives import kill_at
from tests.conformance.transacting import StopAt, numbers, open_catalog
from tests.iceberg.lake import SCHEMA, create, files_below, ids_in, ids_of, names_with_modes, view_version

STEPS = ("commit.begun", "commit.locked", "commit.checked", "commit.written")


def delta_ids(catalog: Catalog, name: str) -> list[int]:
    return sorted(catalog.table(name).to_pyarrow_table()["id"].to_pylist())


def test_both_formats_are_committed_together(catalog: Catalog) -> None:
    create(catalog, "shop.ice", 1)
    with catalog.begin() as tx:
        tx.write("shop.delta", numbers(2))
        table = tx.iceberg("shop.ice")
        table.append(numbers(2))
        assert ids_in(table) == ids_in(tx.iceberg("shop.ice")) == [1, 2]
        assert ids_of(catalog, "shop.ice") == [1]
    assert tx.result == {"shop.delta": 0, "shop.ice": 2}
    assert ids_of(catalog, "shop.ice") == [1, 2]
    assert delta_ids(catalog, "shop.delta") == [2]
    rows = catalog.sql(f"select distinct table_id from dl_table_versions where txn_id = '{tx.txn_id}'")
    assert rows.num_rows == 2


def test_a_rollback_leaves_no_row_and_no_file(catalog: Catalog, tmp_path: Path) -> None:
    create(catalog, "shop.ice", 1)
    before = files_below(tmp_path / "lake")
    tx = catalog.begin()
    tx.write("shop.delta", numbers(2))
    tx.iceberg("shop.ice").append(numbers(2))
    tx.iceberg("shop.ice").delete("id = 1")
    tx.iceberg().create_table("shop.new", SCHEMA).append(numbers(3))
    tx.rollback()
    assert files_below(tmp_path / "lake") == before
    assert not (tmp_path / "lake" / "shop" / "new").exists()
    assert names_with_modes(catalog) == {"shop.ice": "iceberg"}
    assert ids_of(catalog, "shop.ice") == [1]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.in_turn
def test_a_commit_that_fails_at_any_step_commits_neither(catalog: Catalog, tmp_path: Path, step: str) -> None:
    create(catalog, "shop.ice", 1)
    before = files_below(tmp_path / "lake")
    tx = catalog.begin()
    tx.write("shop.delta", numbers(2))
    tx.iceberg("shop.ice").append(numbers(2))
    with StopAt(step, DeltaError("stopped")), pytest.raises(DeltaError, match="stopped"):
        tx.commit()
    assert ids_of(catalog, "shop.ice") == [1]
    assert names_with_modes(catalog) == {"shop.ice": "iceberg"}
    assert files_below(tmp_path / "lake") == before


TRANSFER = """
import pyarrow as pa
rows = pa.table({"id": pa.array([2], pa.int64())})
with cat.begin() as tx:
    tx.write("shop.delta", rows, mode="append")
    tx.iceberg("shop.ice").append(rows)
    tx.iceberg("shop.ice").append(rows)
"""


@pytest.mark.parametrize("step", [*STEPS, "iceberg.metadata_written", "commit.committed"])
@pytest.mark.in_turn
def test_a_process_killed_at_any_step_committed_both_or_neither(target: str, tmp_path: Path, step: str) -> None:
    with open_catalog(target, tmp_path) as catalog:
        catalog.create_namespace("shop")
        create(catalog, "shop.ice", 1)
        with catalog.begin() as tx:
            tx.write("shop.delta", numbers(1))
    kill_at(step, target, TRANSFER)
    with open_catalog(target, tmp_path) as catalog:
        is_committed = step == "commit.committed"
        assert ids_of(catalog, "shop.ice") == ([1, 2, 2] if is_committed else [1])
        assert delta_ids(catalog, "shop.delta") == ([1, 2] if is_committed else [1])
        catalog.iceberg("shop.ice").append(numbers(3))
        assert 3 in ids_of(catalog, "shop.ice")


def test_of_two_transactions_that_change_one_table_the_second_fails(catalog: Catalog, tmp_path: Path) -> None:
    create(catalog, "shop.ice", 1)
    first, second = catalog.begin(), catalog.begin()
    first.iceberg("shop.ice").append(numbers(2))
    second.iceberg("shop.ice").append(numbers(3))
    second.write("shop.delta", numbers(3))
    first.commit()
    left = files_below(tmp_path / "lake")
    with pytest.raises(VersionTakenError, match="has changed"):
        second.commit()
    assert ids_of(catalog, "shop.ice") == [1, 2]
    assert "shop.delta" not in catalog.tables()
    assert len(left - files_below(tmp_path / "lake")) == 5  # Parquet of both, manifest, list and metadata file


def test_a_table_that_was_only_read_must_not_change_before_the_commit(catalog: Catalog) -> None:
    create(catalog, "shop.ice", 1)
    tx = catalog.begin()
    total = sum(ids_in(tx.iceberg("shop.ice")))
    tx.write("shop.delta", numbers(total))
    catalog.iceberg("shop.ice").append(numbers(2))
    assert ids_in(tx.iceberg("shop.ice")) == [1], "reads are pinned"
    with pytest.raises(VersionTakenError):
        tx.commit()
    assert catalog.tables() == ["shop.ice"]


def test_a_transaction_that_only_read_needs_no_check(catalog: Catalog) -> None:
    create(catalog, "shop.ice", 1)
    with catalog.begin() as tx:
        assert ids_in(tx.iceberg("shop.ice")) == [1]
        catalog.iceberg("shop.ice").append(numbers(2))
    assert tx.result == {}


def test_tables_and_views_are_created_renamed_and_dropped_in_a_transaction(catalog: Catalog) -> None:
    create(catalog, "shop.old", 1)
    create(catalog, "shop.gone")
    with catalog.begin() as tx:
        iceberg = tx.iceberg()
        iceberg.rename_table("shop.old", "shop.kept")
        iceberg.drop_table("shop.gone")
        with iceberg.create_table_transaction("shop.new", SCHEMA) as creation:
            creation.append(numbers(5))
        iceberg.load_table("shop.new").append(numbers(6))
        iceberg.create_view("shop.recent", SCHEMA, view_version())
        assert iceberg.list_tables("shop") == [("shop", "kept"), ("shop", "new")]
        assert iceberg.list_views("shop") == [("shop", "recent")]
        assert iceberg.table_exists("shop.new")
        assert not iceberg.table_exists("shop.gone")
        with pytest.raises(TableAlreadyExistsError):
            iceberg.create_table("shop.new", SCHEMA)
        with pytest.raises(NoSuchTableError):
            iceberg.load_table("shop.gone")
        assert catalog.iceberg().list_views("shop") == []
    assert names_with_modes(catalog) == {"shop.kept": "iceberg", "shop.new": "iceberg", "shop.recent": "view"}
    assert ids_of(catalog, "shop.new") == [5, 6]
    assert ids_of(catalog, "shop.kept") == [1]


def test_a_staged_table_that_is_not_committed_leaves_its_name_and_place_free(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.iceberg().create_table_transaction("shop.new", SCHEMA)
    assert catalog.tables() == []
    with catalog.begin() as tx:
        tx.write("shop.new", numbers(1))
    assert catalog.table("shop.new").table_uri.rstrip("/").endswith("/new")


def test_a_table_created_and_dropped_again_leaves_no_files(catalog: Catalog, tmp_path: Path) -> None:
    with catalog.begin() as tx:
        tx.iceberg().create_table("shop.new", SCHEMA).append(numbers(1))
        tx.iceberg().drop_table("shop.new")
        tx.write("shop.delta", numbers(1))
    assert {file.split("/")[1] for file in files_below(tmp_path / "lake")} == {"delta"}


def test_a_namespace_must_exist_unless_the_transaction_makes_it(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        with pytest.raises(NoSuchNamespaceError):
            tx.iceberg().create_table("stage.ice", SCHEMA)
        with pytest.raises(NotWritableError, match="namespaces"):
            tx.iceberg().create_namespace("stage")
        tx.write("stage.delta", numbers(1))
        tx.iceberg().create_table("stage.ice", SCHEMA)
    assert catalog.tables("stage") == ["stage.delta", "stage.ice"]


def test_old_metadata_files_are_deleted_after_the_commit_only(catalog: Catalog, tmp_path: Path) -> None:
    properties: dict[str, Any] = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "1",
    }
    create(catalog, "shop.ice", 1, **properties)
    folder = tmp_path / "lake" / "shop" / "ice" / "metadata"
    before = set(folder.glob("*.metadata.json"))
    tx = catalog.begin()
    tx.iceberg("shop.ice").append(numbers(2))
    tx.rollback()
    assert set(folder.glob("*.metadata.json")) == before
    with catalog.begin() as tx:
        tx.iceberg("shop.ice").append(numbers(2))
        assert before <= set(folder.glob("*.metadata.json"))
    assert len(set(folder.glob("*.metadata.json"))) == 2
    assert ids_of(catalog, "shop.ice") == [1, 2]


def test_statements_after_the_end_are_refused(catalog: Catalog) -> None:
    create(catalog, "shop.ice", 1)
    with catalog.begin() as tx:
        table = tx.iceberg("shop.ice")
    with pytest.raises(DeltaError, match="is committed"):
        table.append(numbers(2))
    assert ids_of(catalog, "shop.ice") == [1]
