"""The bridge's file system and log store as Hadoop and Delta call them, from Python."""

from collections.abc import Iterable
from typing import Any

from pyspark.sql import SparkSession


class Hadoop:
    """Calls of `dldb:` in the JVM of a session, under that session's settings."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()

    def path(self, text: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(text)

    def fs(self, text: str) -> Any:
        return self.path(text).getFileSystem(self._conf)

    def exists(self, text: str) -> bool:
        return bool(self.fs(text).exists(self.path(text)))

    def read(self, text: str) -> bytes:
        stream = self.fs(text).open(self.path(text))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def length(self, text: str) -> int:
        return int(self.fs(text).getFileStatus(self.path(text)).getLen())

    def names(self, text: str) -> list[str]:
        return sorted(str(one.getPath().getName()) for one in self.fs(text).listStatus(self.path(text)))

    def delete(self, text: str, *, recursive: bool = True) -> bool:
        return bool(self.fs(text).delete(self.path(text), recursive))

    def rename(self, old: str, new: str) -> bool:
        return bool(self.fs(old).rename(self.path(old), self.path(new)))

    def glob(self, text: str) -> list[str]:
        found = self.fs(text).globStatus(self.path(text))
        return [] if found is None else sorted(str(one.getPath().toUri().getPath()) for one in found)

    def listed(self, text: str) -> list[tuple[str, int]]:
        """The log store's listing from a name on."""
        found, listing = [], self._store().listFrom(self.path(text), self._conf)
        while listing.hasNext():
            one = listing.next()
            found.append((str(one.getPath().getName()), int(one.getLen())))
        return found

    def commit(self, text: str, lines: Iterable[str]) -> None:
        """Write a commit as Delta does."""
        held = self._jvm.java.util.ArrayList()
        for line in lines:
            held.add(line)
        self._store().write(self.path(text), held.iterator(), False, self._conf)

    def _store(self) -> Any:
        return self._jvm.io.deltalakedb.SqlLogStore(self._conf)
