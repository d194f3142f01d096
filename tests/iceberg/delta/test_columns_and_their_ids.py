"""What Iceberg clients are told of columns: names that they would mix up, the columns of row tracking."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from deltalakedb import Catalog
from deltalakedb.exceptions import NotSayableInIcebergError
from tests.iceberg.delta.lake import load


def test_a_nested_column_and_one_with_a_dot_are_not_mixed_up(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("shop.t", pa.table({"a.b": [1], "a": [{"b": 2}]}))
    with pytest.raises(NotSayableInIcebergError, match="two columns are called a.b"):
        load(catalog)


def test_rows_keep_their_ids_when_files_are_rewritten(catalog: Catalog) -> None:
    """The files then have a column with the ids: Iceberg's `_row_id`. PyIceberg asks for the name of each column."""
    with catalog.begin() as tx:
        tx.write("shop.t", pa.table({"id": [1, 2, 3]}), configuration={"delta.enableRowTracking": "true"})
    catalog.table("shop.t").update({"id": "20"}, predicate="id = 2")
    table = load(catalog)
    mapping = json.loads(table.metadata["properties"]["schema.name-mapping.default"])
    names = {item["field-id"]: item["names"][0] for item in mapping}
    assert names[1] == "id"
    assert names[2_147_483_540].startswith("_row-id-col-")
    assert any(name.startswith("_row-commit-version-col-") for name in names.values())
    assert sorted(catalog.iceberg("shop.t").scan().to_arrow()["id"].to_pylist()) == [1, 3, 20]
