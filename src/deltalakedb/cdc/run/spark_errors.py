"""Errors of Spark as one line that says what happened and what to do, without Java's stack traces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from deltalakedb.exceptions import CaptureError, redact

_ADVICE: Final = {
    "No module named 'deltalakedb": "install deltalakedb[cdc] in the Python of the executors, and name that Python in "
    "PYSPARK_PYTHON (docs/cdc.md, On a cluster)",
    "PYTHON_VERSION_MISMATCH": "let PYSPARK_PYTHON name a Python of the driver's version on every machine",
}
_STACK: Final = ("at ", "Caused by:", "...", "File ", "Traceback")
"""How lines of Java's and Python's stack traces begin."""


@contextmanager
def spark_errors() -> Iterator[None]:
    """Translate Spark's exceptions to a CaptureError with one line."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise CaptureError(f"Spark failed: {describe_error(str(error))}") from error


def describe_error(text: str) -> str:
    """The message of the Python task within Java's text, with advice if there is any."""
    # Java's text begins with ": ".
    lines = [line.strip().removeprefix(": ") for line in text.splitlines() if line.strip()]
    messages = [line for line in lines if not line.startswith(_STACK)]
    errors = [line for line in messages if "Error: " in line or "Exception: " in line]
    line = redact((errors or messages or ["no reason was given"])[-1])
    return ". ".join([line, *(f"To mend it, {advice}" for sign, advice in _ADVICE.items() if sign in line)])
