"""`python -m bench`: generates the tables, runs the rows asked for, prints them and writes bench/RESULTS.md."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import fields
from pathlib import Path

from bench import (
    api,
    bulk,
    cdc,
    cdc_memory,
    commits,
    endpoint,
    iceberg,
    iceberg_delta,
    iceberg_rest,
    report,
    spark,
    spark_plans,
)
from bench.lab import Lab, Sizes
from bench.ours import ENGINES
from bench.postgres import running_postgres
from bench.rows import ROWS

RESULTS = Path(__file__).with_name("RESULTS.md")

WRITING = {
    "crowd": commits.crowd_rows,
    "one-table": commits.one_table_rows,
    "alone": commits.alone_rows,
    "lag": commits.lag_rows,
    "large-commit": bulk.large_commit_rows,
    "checkpoint": bulk.checkpoint_rows,
}
Rows = Mapping[str, Callable[[Lab], list[report.Row]]]
GROUPS: dict[str, tuple[str, Rows]] = {
    "reads": ("Reading", {name: row for name, row in ROWS.items() if name != "huge"}),
    "commits": ("Writing", WRITING),
    "endpoint": ("The endpoint", {"endpoint": endpoint.endpoint_rows}),
    "spark": ("Spark", {**spark.ROWS, **spark_plans.ROWS}),
    "iceberg": ("Iceberg", {**iceberg.ROWS, **iceberg_delta.ROWS, **iceberg_rest.ROWS}),
    "api": ("The Python API", api.ROWS),
    "cdc": ("Change capture", cdc.ROWS),
    "cdc-memory": ("Memory of a capture", {"cdc-memory": cdc_memory.memory_rows}),
    "huge": ("Ten million files", {"huge": ROWS["huge"]}),
}
"""Each group is a section of the report, which a run of all its rows replaces."""


def main() -> int:
    options = _options()
    title, known = GROUPS[options.group]
    chosen = options.rows or tuple(known)
    sizes = Sizes(
        **{field.name: getattr(options, field.name) for field in fields(Sizes) if hasattr(options, field.name)}
    )
    started, load = time.perf_counter(), os.getloadavg()[0]
    rows: list[report.Row] = []
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder,
        running_postgres(Path(folder) / "postgres") as postgres,
        closing(Lab(Path(folder), postgres, sizes, options.engines)) as lab,
    ):
        for name in chosen:
            print(f"{name}:", file=sys.stderr, flush=True)
            rows += known[name](lab)
            print(report.table(rows), file=sys.stderr, flush=True)
    elapsed = time.perf_counter() - started
    described = _describe(options.group, sizes)
    text = report.render(title, rows, sizes=described, elapsed_seconds=elapsed, postgres=postgres.version, load=load)
    print(text)
    output = options.output or (RESULTS if set(known) <= set(chosen) else None)
    if output and not options.no_output:
        report.write(output, title, text)
    return 0


def _describe(group: str, sizes: Sizes) -> str:
    columns = "6 columns with statistics (long, int, double, string, date, timestamp)"
    if group == "commits":
        return (
            f"{sizes.writers} writers for {sizes.seconds:.0f} s; {sizes.single_commits} single commits; a commit of "
            f"{sizes.adds:,} adds; a checkpoint of {sizes.large_files:,} files; {columns}"
        )
    if group == "endpoint":
        return f"{sizes.clients} clients for {sizes.seconds:.0f} s each row, one connection each, from 4 processes"
    if group == "api":
        return (
            f"a table of {sizes.api_rows:,} rows of 8 columns, {sizes.small_files:,} small files, a merge into "
            f"{sizes.merge_rows:,} rows, one row of {sizes.files:,} files; {sizes.api_rounds} rounds"
        )
    if group == "cdc":
        return (
            f"{sizes.cdc_rows:,} inserts of 6 columns in {cdc.TRANSACTIONS} transactions, {sizes.cdc_updates:,} of "
            f"{sizes.cdc_table_rows:,} rows updated, {sizes.cdc_rate:,} transactions/s for {sizes.cdc_seconds:.0f} s; "
            "the source has wal_level = logical; Spark local[2]"
        )
    if group == "cdc-memory":
        return f"{cdc_memory.RATE} transactions/s for {sizes.cdc_memory_seconds:.0f} s, 2 s window; Spark local[2]"
    if group == "iceberg":
        return (
            f"a table of {sizes.files:,} files, 6 columns with statistics, manifests of 5,000 files; "
            f"{iceberg_rest.CLIENTS} clients for {sizes.seconds:.0f} s; {sizes.iceberg_tables:,} tables in a "
            f"namespace, one of them with {iceberg_rest.SNAPSHOTS:,} snapshots"
        )
    if group == "spark":
        return (
            f"a table of {sizes.files:,} files with statistics, one of {sizes.real_files:,} real files, "
            f"{sizes.spark_rows:,} rows of 8 columns; {sizes.statement_rounds} rounds of statements; Spark local[2]"
        )
    return (
        f"tables of {sizes.files:,} and {sizes.large_files:,} files, {columns}; {sizes.commits:,} commits; "
        f"{sizes.rewrites} rewrites of {sizes.rewrite_files:,}"
    )


def _options() -> argparse.Namespace:
    defaults = Sizes()
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("group", nargs="?", choices=GROUPS, default="reads", help="which section of the report")
    names = {name: row for _, known in GROUPS.values() for name, row in known.items()}
    parser.add_argument("--rows", type=_names(tuple(names)), help=f"some of a group's: {', '.join(names)}")
    parser.add_argument("--engines", type=_names(ENGINES), default=ENGINES, help=f"of {', '.join(ENGINES)}")
    parser.add_argument("--files", type=int, default=defaults.files, help="files of the table most rows use")
    parser.add_argument(
        "--large-files", type=int, default=defaults.large_files, help="files of the rows scale, memory and checkpoint"
    )
    parser.add_argument("--huge-files", type=int, default=defaults.huge_files, help="files of the row huge (Postgres)")
    parser.add_argument("--commits", type=int, default=defaults.commits, help="commits of the log without a checkpoint")
    parser.add_argument("--rewrite-files", type=int, default=defaults.rewrite_files, help="files rewritten ten times")
    parser.add_argument("--rounds", type=int, default=defaults.rounds, help="rounds behind a median of reading")
    parser.add_argument("--writers", type=int, default=defaults.writers, help="processes of the rows crowd, one-table")
    parser.add_argument("--seconds", type=float, default=defaults.seconds, help="how long they write, each system")
    parser.add_argument("--single-commits", type=int, default=defaults.single_commits, help="commits of the row alone")
    parser.add_argument("--adds", type=int, default=defaults.adds, help="files of the row large-commit")
    parser.add_argument("--clients", type=int, default=defaults.clients, help="clients at once of the group endpoint")
    parser.add_argument("--real-files", type=int, default=defaults.real_files, help="files of the row selective-read")
    parser.add_argument("--spark-rows", type=int, default=defaults.spark_rows, help="rows of the rows append, merge")
    parser.add_argument(
        "--statement-rounds", type=int, default=defaults.statement_rounds, help="rounds of the row statements"
    )
    parser.add_argument("--api-rows", type=int, default=defaults.api_rows, help="rows of the group api's table")
    parser.add_argument("--api-rounds", type=int, default=defaults.api_rounds, help="rounds behind its medians")
    parser.add_argument("--small-files", type=int, default=defaults.small_files, help="files of the row api-compact")
    parser.add_argument("--merge-rows", type=int, default=defaults.merge_rows, help="rows of the row merge-limit")
    parser.add_argument(
        "--iceberg-tables", type=int, default=defaults.iceberg_tables, help="tables of the row iceberg-lists"
    )
    parser.add_argument("--cdc-rows", type=int, default=defaults.cdc_rows, help="inserts of the row cdc-inserts")
    parser.add_argument(
        "--cdc-table-rows", type=int, default=defaults.cdc_table_rows, help="rows of the table of the row cdc-updates"
    )
    parser.add_argument("--cdc-updates", type=int, default=defaults.cdc_updates, help="how many of them are updated")
    parser.add_argument("--cdc-rate", type=int, default=defaults.cdc_rate, help="transactions/s of the row cdc-lag")
    parser.add_argument("--cdc-seconds", type=float, default=defaults.cdc_seconds, help="how long its load runs")
    parser.add_argument(
        "--cdc-memory-seconds", type=float, default=defaults.cdc_memory_seconds, help="how long cdc-memory measures"
    )
    parser.add_argument("--folder", type=Path, help="where to generate (default: the system's temporary folder)")
    parser.add_argument("--output", type=Path, help=f"the report (default: {RESULTS.name}, when a whole group is run)")
    parser.add_argument("--no-output", action="store_true", help="print only")
    options = parser.parse_args()
    unknown = [name for name in options.rows or () if name not in GROUPS[options.group][1]]
    if unknown:
        parser.error(f"{', '.join(unknown)}: not a row of the group {options.group}")
    return options


def _names(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        chosen = tuple(part for part in text.split(",") if part)
        unknown = [part for part in chosen if part not in known]
        if unknown or not chosen:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; choose from {', '.join(known)}")
        return chosen

    return parse


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
