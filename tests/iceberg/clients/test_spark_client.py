"""Spark with Iceberg's own runtime works on the catalog's Iceberg tables and views."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog

from deltalakedb.serve.server import Endpoint
from tests.fixtures.spark import submit_arguments

pytestmark = pytest.mark.spark


@pytest.fixture
def seen(uri: str, tmp_path: Path) -> dict[str, Any]:
    """What `spark_job.py` saw, in a Spark of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.iceberg.clients.spark_job", uri],
        env={**os.environ, **submit_arguments(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_spark_works_through_the_life_of_tables_and_views(
    seen: dict[str, Any], endpoint: Endpoint, pyiceberg: RestCatalog
) -> None:
    assert seen["copied"] == [[1], [2]]
    assert seen["first"] == [[1], [2], [3]]
    assert seen["orders"] == [[1, "north", 1.0], [3, "north", 30.0], [4, "west", 4.0]]
    assert seen["main"] == [[1, None, 1.0], [3, None, 30.0], [4, None, 4.0]]
    assert seen["side"] == [[1], [3], [4], [9]]
    assert (seen["history"], seen["files"] > 0) == (4, True)
    assert seen["view"] == [["north", 31.0], ["west", 4.0]]
    assert [row[1] for row in seen["views"]] == ["totals"]
    assert seen["tables"] == ["orders", "renamed"]
    assert seen["replaced"] == [[7]]
    assert [row[0] for row in seen["vectors"]] == [1, 3]
    assert len({row[1] for row in seen["vectors"]}) == 2
    assert seen["after_upkeep"] == [[1], [3], [4]]
    names = {row["name"] for row in endpoint.catalog.sql("select name from dl_tables").to_pylist()}
    assert names == {"orders", "copied", "renamed", "totals", "rows"}
    assert endpoint.catalog.tables() == ["shop.orders", "shop.rows"]
    scanned = pyiceberg.load_table("shop.orders").scan().to_arrow()
    assert sorted(scanned.column("total").to_pylist()) == [1.0, 4.0, 30.0]
