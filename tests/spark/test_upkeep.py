"""Upkeep by Spark and by Python on one table: vacuums are known to both, and a restore hands no identity out twice."""

from __future__ import annotations

import pytest

from deltalakedb.exceptions import FilesVacuumedError
from deltalakedb.store import registry
from tests.spark.shop import Shop


def marks(shop: Shop, table: str) -> tuple[int, int]:
    opened = shop.catalog.table(shop.name(table))
    with shop.catalog.store.read() as conn:
        head = registry.read_head(conn, opened._sql().row.table_id)
    assert head is not None
    return head.vacuumed_version, head.vacuum_count


def vacuum(shop: Shop, name: str) -> None:
    check = "spark.databricks.delta.retentionDurationCheck.enabled"
    shop.spark.conf.set(check, "false")
    try:
        shop.spark.sql(f"vacuum {name} retain 0 hours")
    finally:
        shop.spark.conf.unset(check)


def test_a_vacuum_of_spark_sets_the_watermark_that_python_goes_by(shop: Shop) -> None:
    name = shop.create("t", [1, 2])
    shop.spark.sql(f"insert overwrite {name} values (7, 7)")
    before = shop.catalog.begin()
    before.restore(name, 1)
    assert marks(shop, "t") == (0, 0)
    vacuum(shop, name)
    assert marks(shop, "t") == (2, 2)
    operations = [entry["operation"] for entry in shop.catalog.history(name)]
    assert operations[:2] == ["VACUUM END", "VACUUM START"]
    with pytest.raises(FilesVacuumedError, match="version 2 removed"):
        before.commit()
    with pytest.raises(FilesVacuumedError, match="vacuum watermark"):
        shop.catalog.table(name).restore(1)
    with pytest.raises(FilesVacuumedError, match="vacuum watermark"):
        shop.catalog.table(name, version=1).to_pyarrow_table()
    assert shop.rows("t") == [(7, 7)]


def test_a_vacuum_of_python_is_met_by_spark(shop: Shop) -> None:
    name = shop.create("t", [1, 2])
    shop.spark.sql(f"insert overwrite {name} values (7, 7)")
    shop.spark.sql(f"restore table {name} to version as of 1")
    shop.spark.sql(f"insert overwrite {name} values (8, 8)")
    shop.catalog.table(name).vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(Exception, match="[Mm]iss"):
        shop.spark.sql(f"restore table {name} to version as of 1")
    assert shop.rows("t") == [(8, 8)]


def test_identity_values_are_not_handed_out_again_after_a_restore(shop: Shop) -> None:
    name = shop.name("t")
    shop.spark.sql(f"create table {name} (id bigint generated always as identity, value bigint) using delta")
    for number in range(3):
        shop.spark.sql(f"insert into {name} (value) values ({number})")
    before = {row.id for row in shop.spark.table(name).collect()}
    assert len(before) == 3
    shop.catalog.table(name).restore(1)
    shop.spark.sql(f"insert into {name} (value) values (10)")
    after = {row.id for row in shop.spark.table(name).collect()}
    (left,) = before & after
    assert left == min(before), "what version 1 had is there again"
    assert (after - before).pop() > max(before), "and the new row has an id that none ever had"
