"""`python -m bench`: generates the tables, runs the rows asked for, prints them and writes bench/RESULTS.md."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from bench import report
from bench.lab import Lab, Sizes
from bench.ours import ENGINES
from bench.postgres import running_postgres
from bench.rows import DEFAULT_ROWS, ROWS

RESULTS = Path(__file__).with_name("RESULTS.md")


def main() -> int:
    options = _options()
    sizes = Sizes(
        files=options.files, large_files=options.large_files, huge_files=options.huge_files, commits=options.commits,
        rewrite_files=options.rewrite_files, rounds=options.rounds,
    )  # fmt: skip
    started, load = time.perf_counter(), os.getloadavg()[0]
    rows: list[report.Row] = []
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder,
        running_postgres(Path(folder) / "postgres") as postgres,
        closing(Lab(Path(folder), postgres, sizes, options.engines)) as lab,
    ):
        for name in options.rows:
            print(f"{name}:", file=sys.stderr, flush=True)
            rows += ROWS[name](lab)
            print(report.table(rows), file=sys.stderr, flush=True)
    elapsed = time.perf_counter() - started
    text = report.render(rows, sizes=_describe(sizes), elapsed_seconds=elapsed, postgres=postgres.version, load=load)
    print(text)
    output = options.output or (RESULTS if set(DEFAULT_ROWS) <= set(options.rows) else None)
    if output and not options.no_output:
        report.write(output, text)
    return 0


def _describe(sizes: Sizes) -> str:
    return (
        f"tables of {sizes.files:,} and {sizes.large_files:,} files, 6 columns with statistics (long, int, double, "
        f"string, date, timestamp); {sizes.commits:,} commits; {sizes.rewrites} rewrites of {sizes.rewrite_files:,}"
    )


def _options() -> argparse.Namespace:
    defaults = Sizes()
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rows", type=_names(tuple(ROWS)), default=DEFAULT_ROWS, help=f"of {', '.join(ROWS)}")
    parser.add_argument("--engines", type=_names(ENGINES), default=ENGINES, help=f"of {', '.join(ENGINES)}")
    parser.add_argument("--files", type=int, default=defaults.files, help="files of the table most rows use")
    parser.add_argument(
        "--large-files", type=int, default=defaults.large_files, help="files of the rows scale and memory"
    )
    parser.add_argument("--huge-files", type=int, default=defaults.huge_files, help="files of the row huge (Postgres)")
    parser.add_argument("--commits", type=int, default=defaults.commits, help="commits of the log without a checkpoint")
    parser.add_argument("--rewrite-files", type=int, default=defaults.rewrite_files, help="files rewritten ten times")
    parser.add_argument("--rounds", type=int, default=defaults.rounds, help="rounds behind a median")
    parser.add_argument("--folder", type=Path, help="where to generate (default: the system's temporary folder)")
    parser.add_argument("--output", type=Path, help=f"the report (default: {RESULTS.name}, when all rows are run)")
    parser.add_argument("--no-output", action="store_true", help="print only")
    return parser.parse_args()


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
