"""Values that do not fit a column, and Polars' categories: through every call that writes, on both kinds of tables."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import deltalakedb as dl

PRICES = pa.schema([("id", pa.int64()), ("price", pa.decimal128(5, 2)), ("x", pa.float64())])


@pytest.fixture(params=["path", "sql"])
def uri(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DL_WAREHOUSE", str(tmp_path / "lake"))
    return str(tmp_path / "t") if request.param == "path" else f"deltasql://sqlite/{tmp_path / 'c.db'}?table=s.t"


def prices(value: Any) -> pa.Table:
    return pa.table({"id": [1], "price": [value], "x": [1.0]})


def merge(uri: str, data: Any) -> Any:
    with closing(dl.DeltaTable(uri)) as table:
        merger = table.merge(data, "t.id = s.id", source_alias="s", target_alias="t")
        return merger.when_matched_update_all().when_not_matched_insert_all().execute()


def update(uri: str, value: Any) -> Any:
    with closing(dl.DeltaTable(uri)) as table:
        return table.update({"price": f"cast('{value}' as double)"})


CALLS: dict[str, Callable[[str, Any], Any]] = {
    "append": lambda uri, value: dl.write_deltalake(uri, prices(value), mode="append"),
    "overwrite": lambda uri, value: dl.write_deltalake(uri, prices(value), mode="overwrite"),
    "replace": lambda uri, value: dl.write_deltalake(uri, prices(value), mode="overwrite", predicate="id = 1"),
    "merged schema": lambda uri, value: dl.write_deltalake(uri, prices(value), mode="append", schema_mode="merge"),
    "merge": lambda uri, value: merge(uri, prices(value)),
    "update": update,
}


@pytest.mark.parametrize("call", CALLS)
def test_a_float_that_does_not_fit_a_decimal_is_refused_and_nothing_is_written(uri: str, call: str) -> None:
    dl.write_deltalake(uri, prices(1.5).cast(PRICES))
    for value in (12345.6, 999.995, -1e300, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="Decimal128") as caught:
            CALLS[call](uri, value)
        assert isinstance(caught.value, dl.exceptions.DeltaError)
    with closing(dl.DeltaTable(uri)) as table:
        assert table.version() == 0
        assert [str(value) for value in table.to_pyarrow_table()["price"]] == ["1.50"]


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["a", "b", "c"])])
def test_categories_of_polars_are_written_and_merged(uri: str, kind: Any) -> None:
    first = pl.DataFrame({"id": [1, 2], "c": pl.Series(["a", None], dtype=kind)})
    dl.write_deltalake(uri, first)
    dl.write_deltalake(uri, first.with_columns(id=pl.col("id") + 10), mode="append")
    with closing(dl.DeltaTable(uri)) as table:
        table.alter.add_constraint({"short": "c is null or length(c) = 1"})
    merge(uri, pl.DataFrame({"id": [2, 3], "c": pl.Series(["b", "c"], dtype=kind)}))
    with closing(dl.DeltaTable(uri)) as table:
        rows = {row["id"]: row["c"] for row in table.to_pyarrow_table().to_pylist()}
        assert rows == {1: "a", 2: "b", 3: "c", 11: "a", 12: None}
        assert [(item.name, item.metadata) for item in table.schema().fields] == [("id", {}), ("c", {})]


def test_categories_within_lists_and_structs_are_written(uri: str) -> None:
    kind = pl.Categorical
    data = pl.DataFrame(
        {
            "tags": pl.Series([["x", None], []], dtype=pl.List(kind)),
            "at": pl.Series([{"c": "y"}, None], dtype=pl.Struct({"c": kind})),
        }
    )
    dl.write_deltalake(uri, data)
    with closing(dl.DeltaTable(uri)) as table:
        assert table.to_pyarrow_table().to_pylist()[0] == {"tags": ["x", None], "at": {"c": "y"}}


def test_batches_of_different_schemas_are_refused_before_anything_is_written(uri: str) -> None:
    batches = [pa.record_batch({"id": [1], "c": ["a"]}), pa.record_batch({"id": [2]})]
    for mode in ("error", "append", "overwrite"):
        with pytest.raises(ValueError, match="Schema at index 1 was different"):
            dl.write_deltalake(uri, batches, mode=mode)
    dl.write_deltalake(uri, [batches[0], batches[0]])
    with pytest.raises(ValueError, match="Schema at index 1 was different"):
        dl.write_deltalake(uri, batches, mode="append")
