"""Settings that a read or a write changes in a session temporarily."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_lock = threading.Lock()
_held: dict[tuple[str, str], _Held] = {}


@dataclass(slots=True)
class _Held:
    before: str | None
    users: int = 0


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Apply a setting for the duration of the block. Concurrent threads share it; the last one restores it."""
    key = (_session_of(spark), name)
    with _lock:
        held = _held.get(key)
        if held is None:
            held = _held[key] = _Held(spark.conf.get(name, None))
            spark.conf.set(name, value)
        held.users += 1
    try:
        yield
    finally:
        with _lock:
            held.users -= 1
            if not held.users:
                del _held[key]
                if held.before is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, held.before)


def _session_of(spark: SparkSession) -> str:
    """The session's id: several Python objects may stand for one session of the JVM."""
    of_jvm = getattr(spark, "_jsparkSession", None)
    return f"python {id(spark)}" if of_jvm is None else str(of_jvm.sessionUUID())
