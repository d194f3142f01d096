"""SparkTransaction: DataFrame writes and SQL on any number of tables, committed together or not at all."""

from __future__ import annotations

import logging
import re
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from deltalakedb.exceptions import (
    ConfigError,
    DeltaError,
    EndpointError,
    GoneError,
    NotWritableError,
    OutcomeUnknownError,
    StoreError,
    TableNotFoundError,
)
from deltalakedb.spark.session import bridge_of, setting
from deltalakedb.store.names import parse_table_name
from deltalakedb.transactions.life import TransactionLife

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from deltalakedb.spark.endpoint import EndpointClient, Named

_log = logging.getLogger(__name__)

# A query that Delta answers from metadata alone opens no data file, so the read would not be recorded.
_METADATA_QUERIES = "spark.databricks.delta.optimizeMetadataQuery.enabled"


def begin(
    spark: SparkSession,
    catalog: Any = None,
    message: str | None = None,
    lock: Sequence[str] | None = None,
) -> SparkTransaction:
    """Begin a transaction over many tables; `with dls.begin(spark) as tx:` commits it at the end of the block.

    The session must have the bridge (`dls.session`, `dls.configure`). `catalog` only checks which catalog the session
    has: another one is an error. `lock` names tables that other writers, except appends, must not change meanwhile.
    """
    return SparkTransaction(spark, bridge_of(spark, catalog), message=message, lock=lock)


class SparkTransaction(TransactionLife):
    """A unit of work over many tables, from Spark.

    It sees all tables as they were when it began, with its own changes on top; others do not see those before the
    commit. Use tables through `sql`, `table` or `path`: what the session reads or writes by a table's plain name is not
    part of the transaction. Evaluate DataFrames of the transaction while it is open.
    """

    def __init__(
        self,
        spark: SparkSession,
        endpoint: EndpointClient,
        *,
        message: str | None = None,
        lock: Sequence[str] | None = None,
    ) -> None:
        begun = endpoint.begin(message=message, lock=list(lock or ()))
        super().__init__(begun.txn_id, message)
        self._spark, self._endpoint = spark, endpoint
        self._paths: dict[tuple[str, str], str] = {}
        self._app_versions: dict[str, tuple[str, int]] = {}
        self._settings = ExitStack()
        self._settings.enter_context(setting(spark, _METADATA_QUERIES, "false"))
        self._id = begun.txn
        self._heartbeat = Heartbeat(endpoint, self._id, begun.timeout_seconds)
        # A forgotten transaction cannot be committed: without signs of life the endpoint aborts it.
        self._finalizer = weakref.finalize(self, _release_session, self._heartbeat, self._settings)

    # -- statements

    def path(self, name: str) -> str:
        """The path of a table in this transaction, for `save`, `load` and everything else that takes a path.

        For a table that does not exist yet it is the path where `save` will create it, below the warehouse.
        """
        self._check_open()
        key = parse_table_name(name).key
        if key not in self._paths:
            try:
                self._paths[key] = _to_path(self._endpoint.name(name, txn=self._id))
            except TableNotFoundError:
                self._paths[key] = _to_path(self._endpoint.reserve(name, txn=self._id))
        return self._paths[key]

    def table(self, name: str, **options: Any) -> DataFrame:
        """A table as this transaction sees it; options are those of `format("delta")`, such as `versionAsOf=3`."""
        path = self._existing_path(name)
        with self._translate_end():
            return self._spark.read.format("delta").options(**options).load(path)

    def sql(self, text: str, **frames: DataFrame) -> DataFrame:
        """Run SQL in which `{ns.name}` is a table of this transaction: a query, DML, CREATE TABLE, CTAS, OPTIMIZE.

        `{name}` is a DataFrame if one is passed under that name. Braces in literals, quoted names and comments are left
        alone; elsewhere `{{` and `}}` are braces.
        """
        self._check_open()
        views: dict[str, str] = {}

        def resolve(name: str, creates: bool) -> str:
            if name in frames:
                view = views.setdefault(name, f"_deltalakedb_{uuid.uuid4().hex}")
                frames[name].createOrReplaceTempView(view)
                return view
            return quoted_path(self.path(name) if creates else self._existing_path(name))

        filled = fill_table_names(text, resolve)
        try:
            with self._translate_end():
                return self._spark.sql(filled)
        finally:
            # The plan is analysed by now, and no longer needs the views.
            for view in views.values():
                self._spark.catalog.dropTempView(view)

    def _existing_path(self, name: str) -> str:
        self._check_open()
        key = parse_table_name(name).key
        if key not in self._paths:
            self._paths[key] = _to_path(self._endpoint.name(name, txn=self._id))
        return self._paths[key]

    # -- progress of applications

    def app_version(self, name: str, app_id: str) -> int | None:
        """The version in an application's last `txn` action in a table; None without one, or without the table."""
        self._check_open()
        return self._endpoint.app_version(name, app_id, txn=self._id)

    def set_app_version(self, name: str, app_id: str, version: int) -> None:
        """Record an application's version in a table, with this transaction's last commit to it."""
        self._check_open()
        self._endpoint.name(name, txn=self._id)  # raises at once if the table does not exist
        self._app_versions[name] = (app_id, version)

    # -- commit and abort

    def commit(self) -> dict[str, int]:
        """Commit all changes in one SQL transaction; returns the last version of each table.

        If the endpoint does not answer, the outcome is unknown: call commit() again; it never commits twice.
        """
        self._check_can_end()
        self._state = "unknown"
        try:
            self.result = self._endpoint.commit(self._id, self._app_versions).versions
            self._state = "committed"
        except (StoreError, EndpointError, OutcomeUnknownError):
            raise
        except DeltaError:
            self._state = "failed"
            raise
        finally:
            if self._state != "unknown":
                self._release()
        return self.result

    def abort(self) -> None:
        """Abort the transaction: nothing of it is committed."""
        self._check_can_end()
        if not self._endpoint.abort(self._id):
            raise DeltaError(f"transaction {self.txn_id} is committed: commit() again tells its versions")
        self._state = "aborted"
        self._release()

    def _give_up(self, error: BaseException) -> None:
        """Abort after an error in the block, which is raised; if the abort fails, the endpoint's time-out ends it."""
        gone = self._find_end() if isinstance(error, _spark_errors()) else None
        try:
            self._endpoint.abort(self._id)
        except DeltaError as failure:
            _log.warning("transaction %s could not be aborted now, its endpoint will: %s", self.txn_id, failure)
        self._state = "aborted"
        self._release()
        if gone is not None:
            raise gone from error

    def _release(self) -> None:
        self._finalizer.detach()
        _release_session(self._heartbeat, self._settings)
        _forget_logs(self._spark, self._paths.values())

    def _check_open(self) -> None:
        super()._check_open()
        if self._heartbeat.gone is not None:
            self._state = "failed"
            self._release()
            raise self._heartbeat.gone

    @contextmanager
    def _translate_end(self) -> Iterator[None]:
        try:
            yield
        except _spark_errors() as error:
            gone = self._find_end()
            if gone is None:
                raise
            raise gone from error

    def _find_end(self) -> GoneError | None:
        """The reason if the transaction is over, from the endpoint: Spark reports it as one error among many."""
        try:
            self._endpoint.alive(self._id)
        except GoneError as gone:
            return gone
        except DeltaError:
            return None
        return None


def _release_session(heartbeat: Heartbeat, settings: ExitStack) -> None:
    heartbeat.stop()
    with suppress(*_spark_errors()):  # a stopped session has no settings to restore
        settings.close()


def _forget_logs(spark: SparkSession, paths: Iterable[str]) -> None:
    """Remove the transaction's paths from Delta's cache: they are never used again."""
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:  # Spark Connect: they expire from the server's cache
        return
    with suppress(*_spark_errors()):
        for path in paths:
            jvm.org.apache.spark.sql.delta.DeltaLog.invalidateCache(
                spark._jsparkSession, jvm.org.apache.hadoop.fs.Path(path)
            )


def _spark_errors() -> tuple[type[BaseException], ...]:
    """Exceptions that a call to a JVM may raise; if the JVM is gone, the socket's errors."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return Py4JError, PySparkException, OSError


def _to_path(named: Named) -> str:
    if not named.managed:
        raise NotWritableError(
            f"table {named.name} is not managed by this catalog and has no part in its transactions; read it by its "
            f"name, outside of the transaction, or `dl promote {named.name}` to make this catalog its writer",
            table=named.name,
        )
    return named.path


LONGEST_INTERVAL_SECONDS = 20.0


class Heartbeat:
    """Tells the endpoint every few seconds that a transaction's driver is alive, until `stop()` or the process ends."""

    def __init__(self, endpoint: EndpointClient, txn: str, timeout_seconds: float) -> None:
        self.gone: GoneError | None = None
        """Why the transaction is over, once the endpoint has said so."""
        self._endpoint, self._txn = endpoint, txn
        # Several within the time-out, because one may be lost.
        self._interval_seconds = min(LONGEST_INTERVAL_SECONDS, timeout_seconds / 5)
        self._stopped = threading.Event()
        thread = threading.Thread(target=self._beat, name=f"deltalakedb-alive-{txn[:9]}", daemon=True)
        thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _beat(self) -> None:
        while not self._stopped.wait(self._interval_seconds):
            try:
                self._endpoint.alive(self._txn)
            except GoneError as gone:
                self.gone = gone
                return
            except DeltaError:
                continue  # the next statement reports a dead endpoint; it may be back by then


# What may contain braces that are no placeholders comes first. Spark's literals have escapes, except raw ones.
_TOKEN = re.compile(
    r"""
      (?P<kept> (?<!\w)[rR](?:'[^']*'|"[^"]*")
              | '(?:[^'\\]|\\.)*'
              | "(?:[^"\\]|\\.)*"
              | `(?:[^`]|``)*`
              | --[^\n]*
              | /\*.*?\*/ )
    | (?P<doubled> \{\{ | \}\} )
    | \{(?P<name>(?:`(?:[^`]|``)*`|[^{}`])*)\}
    | (?P<stray> [{}] )
    """,
    re.VERBOSE | re.DOTALL,
)
_CREATES = re.compile(r"\b(?:create|replace)\s+table\s+(?:if\s+not\s+exists\s+)?\Z", re.IGNORECASE)


def fill_table_names(text: str, resolve: Callable[[str, bool], str]) -> str:
    """Replace each placeholder by `resolve(name, creates)`; `{{` and `}}` are braces.

    `creates` is true if the statement creates the table: after CREATE TABLE or REPLACE TABLE.
    """
    parts: list[str] = []
    position = 0
    for token in _TOKEN.finditer(text):
        parts.append(text[position : token.start()])
        position = token.end()
        name = token["name"]
        if token["kept"] is not None:
            parts.append(token["kept"])
        elif token["doubled"] is not None:
            parts.append(token["doubled"][0])
        elif name is None or not name.strip():
            raise ConfigError(
                f"position {token.start()} of the SQL text: a table is written {{namespace.name}}, "
                f"a brace that is meant as one {token[0][0] * 2}"
            )
        else:
            parts.append(resolve(name.strip(), _CREATES.search("".join(parts)) is not None))
    parts.append(text[position:])
    return "".join(parts)


def quoted_path(path: str) -> str:
    """The name of a Delta table at a path in Spark SQL."""
    return "delta.`" + path.replace("`", "``") + "`"
