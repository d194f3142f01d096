"""Catalog URIs: the engine, its address, and optionally a table."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from deltalakedb.exceptions import CatalogUriError, redact
from deltalakedb.store.names import TableName, check_part, parse_namespace, parse_table_name, quote_part, split_name

ENGINES = {"sqlite": "sqlite", "duckdb": "duckdb", "postgres": "postgres", "pg": "postgres"}
DUCKDB_SUFFIXES = (".duckdb", ".ddb")

FORMS = (
    "deltasql://sqlite//abs/path/catalog.db, deltasql://duckdb//abs/path/catalog.duckdb, "
    "deltasql://postgres/<db>[/<namespace>/<table>], postgresql://..., or a plain path (SQLite)"
)

# libpq's connection keywords that make sense in a URI; its environment (PGHOST, PGPASSWORD, ...) fills the rest.
LIBPQ_KEYWORDS = frozenset({
    "application_name", "channel_binding", "client_encoding", "connect_timeout", "fallback_application_name",
    "gssdelegation", "gssencmode", "gsslib", "host", "hostaddr", "keepalives", "keepalives_count",
    "keepalives_idle", "keepalives_interval", "krbsrvname", "load_balance_hosts", "options", "passfile",
    "password", "port", "require_auth", "service", "ssl_max_protocol_version", "ssl_min_protocol_version",
    "sslcert", "sslcertmode", "sslcrl", "sslcrldir", "sslkey", "sslmode", "sslnegotiation", "sslpassword",
    "sslrootcert", "sslsni", "target_session_attrs", "tcp_user_timeout", "user",
})  # fmt: skip

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+)://")
_OURS = ("table", "warehouse")
_DBNAME = re.compile(r"\bdbname\s*=\s*'?([^\s']+)")
_KEYWORD_DSN = re.compile(r"^\s*(host|hostaddr|port|dbname|user|password|service|sslmode)\s*=")


@dataclass(frozen=True, slots=True, repr=False)
class CatalogUri:
    """A catalog's address: `target` is a path for SQLite and DuckDB, libpq keywords or a DSN for Postgres."""

    engine: str
    target: str | Mapping[str, str]
    table: TableName | None = None
    warehouse: str | None = None
    """Where tables created by name are stored, if the address has it."""

    def __str__(self) -> str:
        """Return the catalog's address without secrets."""
        if self.engine != "postgres":
            return f"deltasql://{self.engine}/{self.target}{f'?table={_escape(str(self.table))}' if self.table else ''}"
        if isinstance(self.target, str):  # a libpq DSN
            return redact(self.target)
        shown_keywords = {
            key: value for key, value in self.target.items() if key in ("host", "port", "user", "service")
        }
        query = "&".join(f"{key}={value}" for key, value in shown_keywords.items())
        path = "/".join([self.target.get("dbname", ""), *(_segments_of(self.table) if self.table else ())])
        return redact(f"deltasql://postgres/{path}{'?' + query if query else ''}")

    def __repr__(self) -> str:
        return f"CatalogUri({str(self)!r})"

    @property
    def database(self) -> str:
        """The name of the database: that of Postgres, or that of the file without its ending."""
        if self.engine != "postgres":
            return Path(str(self.target)).stem
        if not isinstance(self.target, str):
            return self.target.get("dbname", "postgres")
        if "://" in self.target:
            return unquote(urlsplit(self.target).path.strip("/")) or "postgres"
        keyword = _DBNAME.search(self.target)
        return keyword[1] if keyword else "postgres"


def parse_catalog_uri(uri: str | os.PathLike[str]) -> CatalogUri:
    """Parse a `deltasql://` URI, a libpq DSN (`postgresql://` or keywords) or a path; errors list all forms."""
    text = os.fspath(uri)
    if not isinstance(text, str) or not text.strip():
        raise CatalogUriError(f"the catalog URI is empty; give one of: {FORMS}")
    if "\0" in text:
        raise CatalogUriError("the catalog URI contains a NUL character")
    scheme = _SCHEME.match(text)
    if scheme is None:
        return _parse_plain_path(text)
    match scheme.group(1).lower():
        case "deltasql":
            return _parse_deltasql(text)
        case "postgresql" | "postgres":
            return _parse_postgres_dsn(text)
        case other:
            raise CatalogUriError(f"unknown catalog URI scheme {other}://; these exist: {FORMS}")


def is_catalog_uri(text: str) -> bool:
    """Return whether a text is a catalog URI rather than a path or a table name."""
    scheme = _SCHEME.match(text)
    return scheme is not None and scheme.group(1).lower() in ("deltasql", "postgresql", "postgres")


def _parse_plain_path(text: str) -> CatalogUri:
    if _KEYWORD_DSN.match(text):
        return CatalogUri("postgres", text)
    engine = "duckdb" if text.lower().endswith(DUCKDB_SUFFIXES) else "sqlite"
    return CatalogUri(engine, _file_target(os.path.expanduser(text)))


def _parse_deltasql(text: str) -> CatalogUri:
    address, _, query = text.partition("?")
    name, _, path = address.partition("://")[2].partition("/")
    if "@" in name:
        raise CatalogUriError(
            "a deltasql:// URI names the engine first, with no user or password before it: "
            "deltasql://postgres/<db>?host=...&user=... (the password comes from PGPASSWORD or ~/.pgpass)"
        )
    engine = ENGINES.get(name.lower())
    if engine is None:
        engine_names = ", ".join(ENGINES)
        raise CatalogUriError(f"unknown engine {name!r} in {redact(text)}; these exist: {engine_names}")
    options = _query_options(query, text)
    table, warehouse = (options.pop(key, None) for key in _OURS)
    if engine != "postgres":
        return CatalogUri(engine, _file_of(engine, path, options, text), _parse_name(table), warehouse)
    database, *names = _parts_of(path, text)
    if names and table is not None:
        raise CatalogUriError(f"{redact(text)} names its table twice, in the path and as ?table=")
    target = _name_of_segments(*names) if names else _parse_name(table)
    return CatalogUri(engine, _keywords_of(database, options, text), target, warehouse)


def _file_of(engine: str, path: str, options: Mapping[str, str], text: str) -> str:
    if options:
        _refuse_unknown(options, frozenset(), text)
    if path in ("", "/"):
        raise CatalogUriError(f"{redact(text)} names no file; write deltasql://{engine}//abs/path/catalog.db")
    # One slash ends the engine's name, so `sqlite//abs` is absolute and `sqlite/rel` relative to the working directory.
    return _file_target(unquote(path))


def _parts_of(path: str, text: str) -> list[str]:
    """Return the Postgres database (or an empty text), and optionally a namespace and a table."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if len(parts) not in (1, 3):
        raise CatalogUriError(
            f"{redact(text)} should have the form deltasql://postgres/<db> or deltasql://postgres/<db>/<namespace>/<table>"
        )
    return parts


def _keywords_of(database: str, options: Mapping[str, str], text: str) -> dict[str, str]:
    _refuse_unknown(options, LIBPQ_KEYWORDS, text)
    if not database and "service" not in options:
        raise CatalogUriError(f"{redact(text)} names no database; write deltasql://postgres/<db>[/<namespace>/<table>]")
    return {"dbname": database, **options} if database else dict(options)


def _parse_postgres_dsn(text: str) -> CatalogUri:
    """Pass a DSN to libpq unchanged, without `table=` and `warehouse=`, which are ours."""
    head, mark, query = text.partition("?")
    items = [item for item in query.split("&") if item]
    ours = [item for item in items if item.partition("=")[0] in _OURS]
    rest = "&".join(item for item in items if item not in ours)
    options = _query_options("&".join(ours), text)
    return CatalogUri(
        "postgres", head + (mark + rest if rest else ""), _parse_name(options.get("table")), options.get("warehouse")
    )


def _parse_name(table: str | None) -> TableName | None:
    return None if table is None else parse_table_name(table)


def _name_of_segments(namespace: str, table: str) -> TableName:
    """Return the name of a namespace as text and a table, which needs no backticks because it follows a slash."""
    whole = f"{namespace}/{table}"
    parts = split_name(table) if table.startswith("`") else [check_part(table, whole=whole)]
    if len(parts) != 1:
        raise CatalogUriError(
            f"{whole!r} should be <namespace>/<table>; the dots of a namespace stand before the slash"
        )
    return TableName(parse_namespace(namespace), parts[0])


def _segments_of(table: TableName) -> tuple[str, str]:
    """Return the URL-encoded segments of a name; the inverse of `_name_of_segments`."""
    name = quote_part(table.name) if table.name.startswith("`") else table.name
    return _escape(table.namespace), _escape(name)


def _escape(text: str) -> str:
    """Encode the characters that would end a path segment or an option of a URI."""
    return re.sub("[%&#?/]", lambda char: quote(char[0], safe=""), text)


def _query_options(query: str, text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for item in filter(None, query.split("&")):
        # Not parse_qsl: libpq, whose URIs these resemble, does not read '+' as a space.
        key, _, value = item.partition("=")
        if key in options:
            raise CatalogUriError(f"{redact(text)} gives {key} twice")
        options[key] = unquote(value)
    return options


def _refuse_unknown(options: Mapping[str, str], engines_own: frozenset[str], text: str) -> None:
    for key in sorted(options.keys() - engines_own):
        import difflib

        known_options = sorted(engines_own.union(_OURS))
        nearest = difflib.get_close_matches(key, known_options, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else f"known are {', '.join(known_options)}"
        raise CatalogUriError(f"unknown option {key!r} in {redact(text)}; {hint}")


def _file_target(path: str) -> str:
    if path == ":memory:":
        raise CatalogUriError("a catalog lives in a file, so that others can open it; give a path instead of :memory:")
    return os.path.abspath(path)
