"""`python -m tests.differential`: runs all calls, brings `differences.toml` and the docs' section up to date."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.differential.lines import all_lines
from tests.differential.listed import UNEXPLAINED, Place, listed, read_reasons, replace_calls, write_reasons
from tests.differential.page import write
from tests.differential.places import Starts
from tests.differential.run import compare
from tests.fixtures.sizes import give_duckdb_one_thread


def main() -> int:
    give_duckdb_one_thread()
    found: dict[Place, list[str]] = {}
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # a thread may still write there
        starts = Starts(Path(folder))
        for line in all_lines():
            for mode, classes in compare(line, starts).items():
                if classes:
                    found[mode, line.name] = sorted(classes)
    write_reasons(replace_calls(found))
    read_reasons.cache_clear()
    listed.cache_clear()
    write()
    unexplained = read_reasons().get(UNEXPLAINED)
    for (mode, name), facts in unexplained.calls.items() if unexplained else ():
        print(f"{mode} {name}: {', '.join(facts)}", file=sys.stderr)
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
