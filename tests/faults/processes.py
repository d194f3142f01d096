"""Runs workers as processes of their own, alone or many at once, and reads what they say line by line.

They come from a fork server that has imported what they need: starting one costs milliseconds, not seconds.
"""

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from tests.fixtures.forked import FORKS

LONGEST_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Ended:
    """What a worker said, and how it ended: 0 well, 1 by an error, -9 killed."""

    said: list[dict[str, Any]]
    code: int
    errors: str = field(repr=False)

    def all_of(self, key: str) -> list[Any]:
        return [line[key] for line in self.said if key in line]


@dataclass(slots=True)
class Worker:
    process: ForkServerProcess
    output: Path

    def wait(self) -> Ended:
        self.process.join(LONGEST_SECONDS)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
            raise AssertionError(f"a worker did not end:\n{self.output.read_text()[-4000:]}")
        lines = self.output.read_text().splitlines()
        said = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return Ended(said, self.process.exitcode, "\n".join(line for line in lines if not line.startswith("{")))

    def kill(self) -> None:
        self.process.kill()


def start(command: str, *, kill_at: str | None = None, **arguments: Any) -> Worker:
    """Start a command of worker.py; `kill_at` is a step at which it dies, with `#2` when it is reached again."""
    handle, output = tempfile.mkstemp(prefix="worker-", suffix=".jsonl")
    os.close(handle)
    process = FORKS.Process(target=_work, args=(output, command, arguments, kill_at), daemon=True)
    process.start()
    return Worker(process, Path(output))


def _work(output: str, command: str, arguments: dict[str, Any], kill_at: str | None) -> None:
    from tests.faults import worker

    descriptor = os.open(output, os.O_WRONLY | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    try:
        if kill_at is not None:
            worker.kill_at(kill_at)
        worker.COMMANDS[command](**arguments)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        sys.exit(1)


def run(command: str, **arguments: Any) -> Ended:
    """Run one worker to its end, which must be a good one."""
    return next(well([start(command, **arguments).wait()]))


def together(workers: Sequence[Worker]) -> list[Ended]:
    """Wait for all."""
    return [worker.wait() for worker in workers]


def well(ended: Sequence[Ended]) -> Iterator[Ended]:
    """Each of them, if it ended well."""
    for one in ended:
        assert one.code == 0, one.errors[-4000:]
        yield one
