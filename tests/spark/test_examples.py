"""The pipelines in examples/ run, and moving a job changes a few lines of it."""

import difflib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

import deltalakedb as dl
from examples import nightly_star_schema, streaming_ingest
from tests.fixtures.spark import submit_arguments

ROOT = Path(__file__).parents[2]
JOB = ROOT / "examples" / "migrate_delta_job"
Bridge = Callable[[dl.Catalog], SparkSession]


@pytest.mark.slow
def test_a_nightly_load_writes_dimensions_and_facts_in_one_transaction(
    bridge: Bridge, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with dl.connect(tmp_path / "catalog.db", warehouse=str(tmp_path / "lake")) as catalog:
        nightly_star_schema.run(bridge(catalog), catalog, nights=2, sales=100)
        tables = (*nightly_star_schema.DIMENSIONS, nightly_star_schema.FACT)
        txns = [{entry["txnId"] for entry in catalog.history(name)} for name in tables]
        assert txns[0] == txns[1] == txns[2]
        assert catalog.table(nightly_star_schema.FACT).count() == 200
    shown = capsys.readouterr().out
    assert "night 3 fails in its third statement" in shown
    assert "DuckDB, from the files" in shown


def test_a_streaming_ingest_merges_late_events_into_two_tables(bridge: Bridge, tmp_path: Path) -> None:
    with dl.connect(tmp_path / "catalog.db", warehouse=str(tmp_path / "lake")) as catalog:
        readings, total = streaming_ingest.run(bridge(catalog), tmp_path, files=4)
        assert readings == 4 * 25
        hours = catalog.table("iot.hourly").to_pyarrow_table().to_pylist()
        assert (sum(row["readings"] for row in hours), sum(row["total"] for row in hours)) == (readings, total)
        first = sum(row["readings"] for row in hours if row["hour"].hour == 0)
        assert first == 20 + 4 * 5, "late events are counted in their own hour"


def run_job(script: str, lake: Path, scratch: Path, **environment: str) -> list[str]:
    """Run a job as it stands, with settings that make a small Spark quick; the lines it prints."""
    scratch.mkdir()
    settings = submit_arguments(scratch, **{"spark.driver.memory": "1g"})
    done = subprocess.run(
        [sys.executable, str(JOB / script)],
        env={**os.environ, "LAKE": str(lake), **settings, **environment},
        cwd=scratch,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [line for line in done.stdout.splitlines() if line.startswith("2026-")]


def arrive(lake: Path, *rows: str) -> None:
    (lake / "arrived.csv").write_text("\n".join(["id,day,amount", *rows]))


@pytest.mark.slow
def test_moving_a_job_changes_a_few_lines_and_no_result(tmp_path: Path, spark: SparkSession) -> None:
    assert spark.version  # it runs beside the tests that have a JVM
    lake, catalog = tmp_path / "lake", f"deltasql://sqlite/{tmp_path}/catalog.db"
    lake.mkdir()
    schema = {"id": pa.int64(), "day": pa.date32(), "amount": pa.float64()}
    write_deltalake(lake / "orders", pa.schema(schema.items()).empty_table())
    daily = {"day": pa.date32(), "orders": pa.int64(), "amount": pa.float64()}
    write_deltalake(lake / "daily", pa.schema(daily.items()).empty_table())
    arrive(lake, "1,2026-01-01,5.0", "2,2026-01-01,2.5", "3,2026-01-02,1.0")
    assert run_job("before.py", lake, tmp_path / "before") == ["2026-01-01 2 7.5", "2026-01-02 1 1.0"]
    with dl.connect(catalog) as opened:
        for name in ("orders", "daily"):
            opened.import_table(lake / name, f"sales.{name}")
        version = opened.table("sales.orders").version()
    arrive(lake, "3,2026-01-02,4.0", "4,2026-01-03,9.0")
    after = run_job("after.py", lake, tmp_path / "after", DL_CATALOG=catalog)
    assert after == ["2026-01-01 2 7.5", "2026-01-02 1 4.0", "2026-01-03 1 9.0"]
    with dl.connect(catalog) as opened:
        assert opened.table("sales.orders").version() > version
        for name in opened.tables():
            assert opened.validate(name).drift is None


def test_the_difference_between_before_and_after_is_a_few_lines() -> None:
    before, after = ((JOB / name).read_text().splitlines() for name in ("before.py", "after.py"))
    changed = [line for line in difflib.ndiff(before, after) if line.startswith(("- ", "+ ")) and line[2:].strip()]
    assert len([line for line in changed if line.startswith("+")]) <= 6, changed
    assert len([line for line in changed if line.startswith("-")]) <= 10, changed
