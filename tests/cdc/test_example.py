"""The example of a captured shop runs, and its readers agree."""

import pytest
from pyspark.sql import SparkSession

from examples.capture_orders.__main__ import run
from examples.capture_orders.readers import instants, show_results
from examples.capture_orders.shop import create_shop
from tests.cdc.conftest import Lake, Source


def test_a_shop_is_captured_live_and_every_reader_finds_the_same_sums(
    source: Source, lake: Lake, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    with source.connect() as conn:
        create_shop(conn)
    run(lake.catalog, source.dsn, spark, seconds=1, window="500ms")
    show_results(lake.catalog, source.dsn)
    shown = capsys.readouterr().out
    assert "DuckDB, from the files" in shown
    assert "never half a transaction" in " ".join(shown.split())
    assert instants(lake.catalog), "orders and their lines were looked at for some instants"
