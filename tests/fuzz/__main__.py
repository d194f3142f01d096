"""Runs cases by hand: `python -m tests.fuzz NAME --seed SEED`, or `NAME --cases 10000` for random ones."""

from __future__ import annotations

import argparse
import collections
import tempfile
from pathlib import Path
from random import SystemRandom

from tests.fuzz.conftest import Fuzzer
from tests.fuzz.parsers import PARSERS
from tests.fuzz.worker import run_case


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    options.add_argument("name", nargs="*", help="parsers; all if none is named")
    options.add_argument("--seed", type=int, help="one case, in this process")
    options.add_argument("--cases", type=int, default=1000)
    chosen = options.parse_args()
    for name in chosen.name or PARSERS:
        if chosen.seed is not None:
            print(name, chosen.seed, run_case(PARSERS[name], chosen.seed))
        else:
            fuzz(name, chosen.cases)


def fuzz(name: str, cases: int) -> None:
    """Run random cases, and print each kind of failure once."""
    random = SystemRandom()
    ends: collections.Counter[str] = collections.Counter()
    failures: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = Fuzzer(Path(folder))
        for _ in range(cases):
            seed = random.randrange(2**48)
            try:
                outcome = fuzzer.run(name, seed)
            except BaseException as error:
                outcome = {"end": "died", "text": str(error)}
                fuzzer = Fuzzer(Path(folder))
            ends[outcome["end"]] += 1
            if outcome["end"] not in ("value", "refused"):
                last = outcome["text"].strip().splitlines()
                where = next((line for line in reversed(last) if line.strip().startswith("File")), "")
                failures.setdefault(f"{where} {last[-1][:60] if last else ''}", f"seed {seed}\n{outcome['text']}")
        fuzzer.close()
    print(f"{name}: {dict(ends)}", flush=True)
    for kind, text in failures.items():
        print(f"--- {name}: {kind.strip()}\n{text}\n", flush=True)


if __name__ == "__main__":
    main()
