"""The source's server: connects to it, translates its failures, identifies it, and checks that it can be captured."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, Final, NamedTuple

from deltalakedb.cdc.control import Server
from deltalakedb.cdc.lsn import parse_lsn
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.exceptions import CaptureSetupError, ConfigError, MissingExtraError, SourceUnavailableError, redact

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
except ModuleNotFoundError:
    raise MissingExtraError("deltalakedb.cdc", "cdc") from None

Connection = psycopg.Connection[Any]

SESSION: Final = files("deltalakedb.cdc").joinpath("sql/session.sql").read_text(encoding="utf-8")
"""The settings of every session: the text of a value must not depend on the connection."""

_DEFAULTS: Final = {
    "connect_timeout": "10",
    "fallback_application_name": "deltalakedb cdc",
    # A dead server is noticed in about a minute, also while waiting for a query.
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}
_MIN_VERSION: Final = 15
_OPERATIONS: Final = ("insert", "update", "delete", "truncate")

# SQLSTATEs that do not concern the statement: connection failures, shutdown, crash, start-up, too many connections.
_GONE_STATES: Final = ("08", "57P", "53300", "25P03", "25P04")
_GONE_TEXTS: Final = re.compile(
    r"server closed the connection|connection (?:is closed|not open|refused|timed out|reset)|no connection to the"
    r"|could not (?:connect|receive|send)|connection to server|terminating connection|is starting up|broken pipe"
    r"|the connection is (?:closed|lost)|SSL connection has been closed|SSL SYSCALL|network error",
    re.IGNORECASE,
)
# The server answers and refuses us. Only its text shows that: a failed connection has no SQLSTATE.
_REFUSED_TEXTS: Final = re.compile(
    r"authentication failed|does not exist|no pg_hba\.conf entry|permission denied|REPLICATION attribute"
    r"|replication role|no password supplied|must be superuser",
    re.IGNORECASE,
)


class _Published(NamedTuple):
    name: str
    insert: bool
    update: bool
    delete: bool
    truncate: bool


def connect(dsn: str, *, autocommit: bool = True, replication: bool = False) -> Connection:
    """Open a session on the source with our settings; its search path is pg_catalog alone, so qualify table names.

    With `replication` it speaks the replication protocol, which takes its commands and simple SQL.
    """
    complete = complete_dsn(dsn, **({"replication": "database"} if replication else {}))
    try:
        conn = psycopg.connect(complete, autocommit=True)
    except psycopg.OperationalError as error:
        raise _not_connected(error, dsn) from error
    try:
        with translate_errors():
            conn.execute(SESSION.encode())
        conn.autocommit = autocommit
    except BaseException:
        conn.close()
        raise
    return conn


def complete_dsn(dsn: str, **extra: str) -> str:
    """A DSN with our time-outs where it has none of its own, for every client that uses libpq."""
    try:
        parameters = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as error:
        raise ConfigError(f"the source is no connection string of Postgres: {redact(str(error).strip())}") from None
    missing: dict[str, Any] = {key: value for key, value in _DEFAULTS.items() if key not in parameters}
    return make_conninfo(dsn, **missing, **extra)


def _not_connected(error: psycopg.OperationalError, dsn: str) -> CaptureSetupError | SourceUnavailableError:
    message = redact(str(error).strip())
    where = _address(dsn)
    if _REFUSED_TEXTS.search(message):
        return CaptureSetupError(
            f"the source {where} does not let us in: {message}; check the DSN, pg_hba.conf, and that the role may "
            "replicate (alter role <role> replication)"
        )
    return SourceUnavailableError(f"the source {where} cannot be reached: {message}")


def _address(dsn: str) -> str:
    """The address in a DSN, without secrets."""
    parameters = conninfo_to_dict(dsn)
    return f"{parameters.get('host') or 'localhost'}:{parameters.get('port') or 5432}/{parameters.get('dbname') or ''}"


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translate failures of the connection, of psycopg and of ADBC, to SourceUnavailableError; other errors stay."""
    try:
        yield
    except Exception as error:  # of two drivers, one of which may not be loaded
        if not is_connection_failure(error):
            raise
        message = redact(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__)
        raise SourceUnavailableError(f"the connection to the source broke: {message}") from error


def is_connection_failure(error: BaseException) -> bool:
    """Whether a driver's error says that the server is gone, rather than anything about the statement."""
    module = type(error).__module__
    if not module.startswith(("psycopg", "adbc_driver")):
        return False
    state = getattr(error, "sqlstate", None) or ""
    if state and state != "00000":
        return state.startswith(_GONE_STATES)
    if isinstance(error, psycopg.Error):
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return _GONE_TEXTS.search(str(error)) is not None


def identify(conn: Connection) -> Server:
    """The identity of the server: LSNs are meaningful only there. CaptureSetupError if it is a standby."""
    with translate_errors():
        if _value(conn, "select pg_is_in_recovery()"):
            raise CaptureSetupError(
                f"the source {_address(conn.info.dsn)} is a standby: changes are captured from the primary server"
            )
        row = conn.execute(_SERVER).fetchone()
    assert row is not None, "an aggregate-free select of one row"
    return Server(str(row[0]), int(row[1], 16), str(row[2]))


def flush_lsn(conn: Connection) -> int:
    """How far the write-ahead log is flushed to the server's disk: everything that can be read now."""
    with translate_errors():
        return parse_lsn(str(_value(conn, "select pg_current_wal_flush_lsn()")))


def take_position(conn: Connection) -> tuple[int, int]:
    """A position in the log, and a transaction id larger than those of all transactions that committed before it.

    A transaction whose commit is in the log may not be visible yet, because it waits for the disk or for a standby: a
    snapshot would say that its id is still to come. So the id is a new one, taken after the position.
    """
    with translate_errors():
        lsn = parse_lsn(str(_value(conn, "select pg_current_wal_insert_lsn()")))
        return lsn, int(_value(conn, "select pg_current_xact_id()::text"))


def check_source(conn: Connection, settings: CaptureSettings) -> None:
    """CaptureSetupError if the source cannot be captured, with what would change that."""
    with translate_errors():
        _check_version(conn)
        identify(conn)
        _check_wal(conn)
        _check_role(conn)
        _check_publication(conn, settings)
        _check_room(conn, settings)


def _check_version(conn: Connection) -> None:
    version = conn.info.server_version // 10000
    if version < _MIN_VERSION:
        raise CaptureSetupError(f"the source is Postgres {version}: changes are captured from {_MIN_VERSION} and later")


def _check_wal(conn: Connection) -> None:
    level = _value(conn, "select current_setting('wal_level')")
    if level != "logical":
        raise CaptureSetupError(
            f"the source has wal_level = {level}, and changes can be captured with logical only: "
            "alter system set wal_level = logical; then restart the server"
        )
    if int(_value(conn, "select current_setting('max_wal_senders')")) == 0:
        raise CaptureSetupError(
            "the source has max_wal_senders = 0, so that no table can be copied: "
            "alter system set max_wal_senders = 10; then restart the server"
        )


def _check_role(conn: Connection) -> None:
    role, may = conn.execute(_ROLE).fetchone() or ("", False)
    if not may:
        raise CaptureSetupError(f"the role {role} may not replicate: alter role {_quote_name(conn, role)} replication")


def _check_publication(conn: Connection, settings: CaptureSettings) -> None:
    quoted = _quote_name(conn, settings.publication)
    row = conn.execute(_PUBLICATION, [settings.publication]).fetchone()
    if row is None:
        others = [name for (name,) in conn.execute("select pubname from pg_publication order by 1").fetchall()]
        existing = f"; there are {', '.join(others)}" if others else ""
        raise CaptureSetupError(
            f"the database {conn.info.dbname} has no publication {settings.publication}{existing}: "
            f"create publication {quoted} for all tables"
        )
    reason = find_unsent(conn, settings.publication)
    if reason is not None:
        raise CaptureSetupError(reason)


def find_unsent(conn: Connection, publication: str) -> str | None:
    """Why a publication does not send all changes of its tables; None if it does, or does not exist."""
    row = conn.execute(_PUBLICATION, [publication]).fetchone()
    missing = [] if row is None else [name for name in _OPERATIONS if not getattr(_Published(*row), name)]
    if not missing:
        return None
    return (
        f"the publication {publication} leaves out {', '.join(missing)}, so that the lake would not equal the source: "
        f"alter publication {_quote_name(conn, publication)} set (publish = 'insert, update, delete, truncate')"
    )


def _check_room(conn: Connection, settings: CaptureSettings) -> None:
    """CaptureSetupError if there is no slot for the capture, or none for a copy of it, which every reader makes."""
    limit, used, existing = conn.execute(_ROOM, [settings.slot]).fetchone() or (0, 0, 0)
    needed = 2 - existing
    if limit - used < needed:
        raise CaptureSetupError(
            f"the source has {used} of max_replication_slots = {limit} slots in use, and the capture needs {needed} "
            "more: drop one that nobody needs (select slot_name, active from pg_replication_slots; "
            "select pg_drop_replication_slot('...')), or alter system set max_replication_slots and restart"
        )


def _value(conn: Connection, query: str) -> Any:
    row = conn.execute(query.encode()).fetchone()
    return None if row is None else row[0]


def _quote_name(conn: Connection, name: str) -> str:
    row = conn.execute("select quote_ident(%s)", [name]).fetchone()
    assert row is not None, "a select of one expression has one row"
    return str(row[0])


def read_sql(name: str) -> bytes:
    """A statement of `cdc/sql`."""
    return files("deltalakedb.cdc").joinpath(f"sql/{name}.sql").read_bytes()


_SERVER: Final = read_sql("select_server")
_ROLE: Final = read_sql("select_role")
_PUBLICATION: Final = read_sql("select_publication")
_ROOM: Final = read_sql("select_slot_room")
