"""`fuzzer`: runs cases in a process with limits, which a crash, a hang or too much memory would end."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LONGEST_SECONDS = 300.0
"""How long an answer may take when nothing is computed: for a case that waits for ever."""


class Fuzzer:
    """A process of `tests/fuzz/worker.py`; one that ends is told from which case."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "stderr"
        search_path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": search_path, "TMPDIR": str(folder), "MALLOC_ARENA_MAX": "2",
                       "ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"}  # fmt: skip
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd=folder,
            )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def run(self, name: str, seed: int) -> dict[str, Any]:
        """How the case ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{name} {seed}\n".encode())
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], LONGEST_SECONDS)
        answer = self._process.stdout.readline() if ready else b""
        if not answer:
            how = f"ended with {self._process.wait()}" if ready else "does not end"
            self.close()
            pytest.fail(f"{name} {seed}: the process {how}:\n{self._log.read_text()[-6000:]}")
        outcome: dict[str, Any] = json.loads(answer)
        return outcome

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class Fuzzers:
    """The process of this session; a new one if it ended."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._fuzzer: Fuzzer | None = None

    def check(self, name: str, seed: int) -> str:
        """Fails unless the case ends with a value or an error of ours; returns which."""
        if self._fuzzer is None or not self._fuzzer.is_alive:
            self._fuzzer = Fuzzer(self._factory.mktemp("fuzzer"))
        outcome = self._fuzzer.run(name, seed)
        assert outcome["end"] in ("value", "refused"), f"{name} {seed}: {outcome['end']}:\n{outcome['text']}"
        return str(outcome["end"])

    def close(self) -> None:
        if self._fuzzer is not None:
            self._fuzzer.close()


@pytest.fixture(scope="session")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzers]:
    fuzzers = Fuzzers(tmp_path_factory)
    yield fuzzers
    fuzzers.close()
