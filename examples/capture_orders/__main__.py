"""An order-processing database, captured live: Postgres, its changes read by Spark, Delta tables of the catalog.

`make demo` ends with it; `python -m examples.capture_orders` is it alone. A shop places, pays, ships and cancels orders
in a Postgres that is started for it, each change of mind in one transaction over three tables. The capture
(`capture.py`: what to copy) brings all of it into the lake, whole transactions at a time: at no instant does an order
there have another total than its lines.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

import deltalakedb as dl
from examples.capture_orders.capture import Capturing, is_streaming, wait_until
from examples.capture_orders.readers import show_results
from examples.capture_orders.shop import TABLES, Shop, end_of_log, started_postgres
from examples.capture_orders.small_spark import started_spark
from examples.capture_orders.view import Picture, console, watched


def run(catalog: dl.Catalog, dsn: str, spark: SparkSession, *, seconds: float = 12, window: str = "1s") -> None:
    """Copy the shop while it works, capture what it does for a while, and wait until all of it is in the lake."""
    with Capturing(catalog, dsn, spark, window) as capturing:
        picture = Picture(dsn, capturing)
        with watched(picture):
            with Shop(dsn) as shop:
                picture.shop, picture.what = shop, "first copy, while the shop is open"
                wait_until(capturing, is_streaming)
                picture.what = "streaming, from exactly where the copy was made"
                wait_until(capturing, lambda status: any(table.captured for table in status.tables))
                time.sleep(seconds)
            picture.what = "the shop has closed"
            last = end_of_log(dsn)
            wait_until(capturing, lambda status: status.capture is not None and status.capture.lsn >= last)
            picture.what = "everything is in the lake"
    status, counts = picture.look()
    console.print(picture.table(status, counts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=12, help="how long the shop works after the first copy")
    parser.add_argument("--keep", type=Path, help="leave the lake in this folder")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="deltalakedb-capture-") as scratch:
        root = (arguments.keep or Path(scratch)).resolve()
        root.mkdir(parents=True, exist_ok=True)
        console.rule("[bold cyan]A Postgres captured live: Spark, whole transactions, Delta tables", align="left")
        with (
            started_postgres(Path(scratch)) as dsn,
            dl.connect(root / "catalog.db", warehouse=str(root / "lake")) as catalog,
        ):
            began = time.monotonic()
            with started_spark() as spark:
                took = time.monotonic() - began
                console.print(f"Postgres with {', '.join(TABLES)}; Spark {spark.version}, started in {took:.1f} s")
                run(catalog, dsn, spark, seconds=arguments.seconds)
            show_results(catalog, dsn)
        if arguments.keep:
            console.print(f"left in {root}: try `DL_CATALOG={root / 'catalog.db'} .venv/bin/dl cdc status`")


if __name__ == "__main__":
    main()
