"""Another process with a Spark of its own, bridged or plain, that runs the code it is told line by line."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import deltalakedb as dl
import deltalakedb.spark as dls
from tests.fixtures.spark import PLAIN, local_conf

READY_SECONDS = 180
_MARK = "peer: "
"""Begins every line that is an answer: Spark writes to the same place."""


class PeerError(Exception):
    """What the other process raised, in its words."""


class Peer:
    """The other process. `tell` and `answer` let both sides work at once; `ask` is one after the other."""

    def __init__(self, scratch: Path, **conf: str) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        self._log = (scratch / "peer.log").open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.peer", str(scratch), json.dumps(conf)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._log, text=True, env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )  # fmt: skip

    def tell(self, code: str) -> None:
        """Python, with `sessions` and what it was told before; the value of `answer` comes back."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(code) + "\n")
        self._process.stdin.flush()

    def answer(self, seconds: float = READY_SECONDS) -> Any:
        """What it answers in time; PeerError when its code raised."""
        watch = threading.Timer(seconds, self._process.kill)
        watch.start()
        try:
            assert self._process.stdout is not None
            for line in self._process.stdout:
                if line.startswith(_MARK):
                    value, error = json.loads(line.removeprefix(_MARK))
                    if error is not None:
                        raise PeerError(error)
                    return value
        finally:
            watch.cancel()
        raise AssertionError(f"the other process ended or did not answer: {Path(self._log.name).read_text()[-2000:]}")

    def ask(self, code: str) -> Any:
        self.tell(code)
        return self.answer()

    def sql(self, *statements: str) -> list[Any]:
        """The rows of the last statement."""
        code = "".join(f"answer = [list(r) for r in spark.sql({text!r}).collect()]\n" for text in statements)
        rows: list[Any] = self.ask(code)
        return rows

    def close(self) -> None:
        if self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._log.close()


class Sessions:
    """What the code can call: a session of Delta's own, or one with an endpoint of this process's own."""

    def __init__(self, scratch: str, conf: str) -> None:
        self._settings = {**local_conf(Path(scratch)), "spark.driver.memory": "1g", **json.loads(conf)}

    def plain(self) -> SparkSession:
        builder = SparkSession.builder
        for key, value in {**PLAIN, **self._settings}.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()

    def bridged(self, catalog: str, warehouse: str) -> SparkSession:
        return dls.session(dl.connect(catalog, warehouse=warehouse), **self._settings)


def main() -> None:
    names: dict[str, Any] = {"sessions": Sessions(*sys.argv[1:]), "time": time}
    for line in sys.stdin:
        names["answer"] = error = None
        try:
            exec(json.loads(line), names)
        except Exception as raised:  # whatever it was, the asking test is told
            error = f"{type(raised).__name__}: {raised}"
        print(f"\n{_MARK}{json.dumps([names['answer'], error])}", flush=True)


if __name__ == "__main__":
    main()
