"""A process that runs parsers on damaged input, with a limit on its memory and on the CPU time of each case.

It reads `name seed` a line, and answers a JSON object: how the case ended.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import resource
import signal
import sys
import traceback
from pathlib import Path
from random import Random
from typing import Any

from deltalakedb.exceptions import DeltaError

MORE_BYTES = 1024**3
"""How much address space a case may take beside what the process has when it begins."""
CPU_SECONDS = 60
"""A bound on the work of a case; the usual one takes milliseconds."""


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a parser prints is no answer
    faulthandler.enable()
    faulthandler.register(signal.SIGXCPU, all_threads=True, chain=True)
    logging.disable(logging.CRITICAL)
    from tests.fuzz.of_bombs import BOMBS
    from tests.fuzz.parsers import PARSERS, Parser

    cases = PARSERS | {name: Parser(run, (), (), 1) for name, run in BOMBS.items()}
    limit_memory()
    for line in sys.stdin:
        name, _, seed = line.rpartition(" ")
        limit_cpu()
        answers.write(json.dumps(run_case(cases[name], int(seed))) + "\n")
        answers.flush()


def limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MORE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def limit_cpu() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    spent = int(used.ru_utime + used.ru_stime)
    resource.setrlimit(resource.RLIMIT_CPU, (spent + CPU_SECONDS, resource.RLIM_INFINITY))


def run_case(parser: Any, seed: int) -> dict[str, Any]:
    """How a case ended: with a value, with an error of ours, or in a way that no case may end."""
    try:
        parser.run(Random(seed))
    except (DeltaError, *parser.also) as error:
        message = str(error)
        problem = describe_message(message, parser.says)
        return {
            "end": "refused" if problem is None else "unclear",
            "text": problem or f"{type(error).__name__}: {message}",
        }
    except BaseException as error:
        return {"end": "raised", "text": "".join(traceback.format_exception(error))[-6000:]}
    return {"end": "value", "text": ""}


def describe_message(message: str, says: tuple[str, ...]) -> str | None:
    """What is wrong with an error's message; None if nothing is."""
    if not message.strip() or len(message) > 50_000:
        return f"a message of {len(message)} characters: {message[:300]!r}"
    missing = [word for word in says if word not in message]
    return f"a message without {missing}: {message[:1000]!r}" if missing else None


if __name__ == "__main__":
    main()
