"""Settings of a Spark session that hold while at least one transaction is open on it, and are put back afterwards."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_lock = threading.Lock()
_held: dict[str, _Held] = {}


@dataclass(slots=True)
class _Held:
    """How many transactions need the settings of a session, and what they were before."""

    before: dict[str, str | None]
    users: int = 0


@dataclass(slots=True)
class Hold:
    """One transaction's claim on the settings."""

    spark: SparkSession
    key: str
    released: bool = field(default=False)

    def release(self) -> None:
        """Give the claim up; the last one puts the settings back. A session that is stopped has none to put back."""
        with _lock:
            if self.released:
                return
            self.released = True
            held = _held[self.key]
            held.users -= 1
            if held.users:
                return
            del _held[self.key]
            for name, value in held.before.items():
                _put_back(self.spark, name, value)


def held_conf(spark: SparkSession, conf: Mapping[str, str]) -> Hold:
    """Set what is needed and remember what was there; the same session may be held by many at once."""
    key = _session_key(spark)
    with _lock:
        if key not in _held:
            _held[key] = _Held({name: spark.conf.get(name, None) for name in conf})
            for name, value in conf.items():
                spark.conf.set(name, value)
        _held[key].users += 1
    return Hold(spark, key)


def _session_key(spark: SparkSession) -> str:
    """Several Python objects may stand for one session of the JVM."""
    of_jvm = getattr(spark, "_jsparkSession", None)
    return f"python {id(spark)}" if of_jvm is None else str(of_jvm.sessionUUID())


def _put_back(spark: SparkSession, name: str, value: str | None) -> None:
    try:
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)
    except Exception as error:
        if type(error).__module__.split(".")[0] not in ("pyspark", "py4j") and not isinstance(error, OSError):
            raise
