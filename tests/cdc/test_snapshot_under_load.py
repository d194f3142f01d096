"""The source is written while its tables are copied for the first time: nothing is lost, nothing comes twice."""

import os

from pyspark.sql import SparkSession

from tests.cdc import judging
from tests.cdc.capturing import capture_once, settings_of
from tests.cdc.conftest import Lake, Source
from tests.cdc.load import PUBLICATION, Load, Loads, create_tables, fill
from tests.cdc.witness import Witness

FULL = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
ROWS = 200_000 if FULL else 5_000


def test_a_copy_under_load_and_the_stream_after_it_fit_together(
    spark: SparkSession, source: Source, lake: Lake
) -> None:
    create_tables(source)
    fill(source, ROWS)
    witness = Witness(source, PUBLICATION)
    clients = [
        Load(source, 5, truncates=False, pause_seconds=0.005),
        Load(source, 6, truncates=True, pause_seconds=0.1),  # a table that is emptied under a copy is copied again
    ]
    with Loads(clients) as loads:
        loads.wait_for(20)
        capture_once(lake, source, spark)
        copied = judging.captured(lake.catalog, settings_of(source))
        loads.wait_for(20)
    capture_once(lake, source, spark)
    capture = judging.captured(lake.catalog, settings_of(source))
    assert capture.lsn > copied.lsn
    happened = witness.happened()
    for table in capture.tables.values():
        assert table.start_lsn is not None
        lsns = [one.lsn for one in happened if one.table == table.source]
        assert min(lsns) < table.start_lsn <= max(lsns), f"{table.source} was not written on both sides of its copy"
    judging.check_all(lake.catalog, source, capture, happened)
