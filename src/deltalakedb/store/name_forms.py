"""Rewrites the names in a database when a migration changes their form: with backticks from schema 4 on."""

from collections.abc import Callable, Iterable

from deltalakedb.exceptions import SchemaVersionError
from deltalakedb.names import TableName, join_namespace, name_key, namespace_parts
from deltalakedb.store.connection import LIVE, Connection, Row

FIRST_QUOTED = 4
"""The migration from which on namespaces have backticks where a part needs them, and keys are lower case."""

_FORBIDDEN_BEFORE = frozenset("./\\'\"`")


def quote_names(conn: Connection) -> None:
    """For the step up: namespaces get their backticks, and keys, which were case-folded, become lower case."""
    _rewrite(conn, lambda namespace: join_namespace(namespace.split(".")), name_key)
    for row in conn.all("select_stored_names"):
        full_name = _format_name(row)
        if row["until_ms"] == LIVE and "`" in full_name:  # else it is what the migration has put there
            conn.run("update_location_name", table_uuid=row["table_uuid"], table_name=full_name)


def unquote_names(conn: Connection) -> None:
    """For the step down; SchemaVersionError when a name is one that the older schema cannot hold."""
    for row in [*conn.all("select_stored_names"), *conn.all("select_stored_namespaces")]:
        parts = [*namespace_parts(row["namespace"]), row.get("name", "")]
        if row["until_ms"] == LIVE and any(_FORBIDDEN_BEFORE.intersection(part) for part in parts):
            raise SchemaVersionError(
                f"the older schema cannot hold the name {_format_name(row)}; rename or drop it first"
            )
    _rewrite(conn, lambda namespace: ".".join(namespace_parts(namespace)), str.casefold)


def _rewrite(conn: Connection, rewrite: Callable[[str], str], key_of: Callable[[str], str]) -> None:
    def changed(row: Row) -> Row:
        namespace = rewrite(row["namespace"])
        found = {"namespace": namespace, "namespace_key": key_of(namespace)}
        return found | {"name_key": key_of(row["name"])} if "name" in row else found

    for rows, query in (
        (conn.all("select_stored_names"), "update_stored_name"),
        (conn.all("select_stored_namespaces"), "update_stored_namespace"),
    ):
        changes = [(row, changed(row)) for row in rows]
        _check_unique(changes)
        for row, values in changes:
            if row | values != row:
                place = {"table_id": row["table_id"]} if "name" in row else {"key_before": row["namespace_key"]}
                conn.run(query, **values, **place, from_ms=row["from_ms"])


def _check_unique(changes: Iterable[tuple[Row, Row]]) -> None:
    taken: dict[tuple[object, ...], Row] = {}
    for row, values in changes:
        other = taken.setdefault((values["namespace_key"], values.get("name_key"), row["until_ms"]), row)
        if other is not row:
            raise SchemaVersionError(
                f"the older schema cannot tell {_format_name(other)} from {_format_name(row)}; rename or drop one first"
            )


def _format_name(row: Row) -> str:
    return str(TableName(row["namespace"], row["name"])) if "name" in row else str(row["namespace"])
