"""The notice beside a managed table's log: who manages the table, how to write to it, and how to get it back.

A Delta writer that meets the fence can only say that it does not know the writer feature `deltalakedb`. A user who
looks into the table's folder then finds `_dldb/README.txt`. It is written after a commit, once for each table and
process, and is not part of the log: Delta readers and VACUUM ignore folders that begin with `_`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from deltalakedb.exceptions import DeltaError, redact
from deltalakedb.files.log_folder import LogFolder
from deltalakedb.log.protocol.fence import FEATURE
from deltalakedb.mirror.table_mirror import TableMirror
from deltalakedb.storage.location import open_storage, parse_location
from deltalakedb.store import registry
from deltalakedb.store.connection import Connection, Store
from deltalakedb.store.registry import TableRow

logger = logging.getLogger(__name__)

FOLDER = "_dldb"
NAME = "README.txt"
_FIRST_LINE = "This Delta table is managed by deltalakedb: every Delta reader can read it, its catalog writes it."


def render_notice(table: TableRow, catalog_id: str, address: object) -> bytes:
    """The text of a table's notice; `address` is the catalog's, without secrets."""
    name, location = table.full_name, redact(table.location)
    catalog = f"{redact(str(address))} (id {catalog_id})" if address else f"id {catalog_id}"
    spark = f"dldb://{parse_location(table.location).bridge_path}"
    lines = (
        _FIRST_LINE,
        f"Table {name}, catalog {catalog}.",
        f'Other writers are refused ("unsupported writer feature: {FEATURE}"). Write by name, in Python, with `dl`, or '
        f"in a Spark session of deltalakedb.spark, where the path {spark} is the same table.",
        f"`dl detach {name}` gives the table back to its files: from then on every Delta writer can write it.",
        f"`dl doctor {location}` says how the table is now. The catalog wrote this file and removes it.",
    )
    return "".join(f"{line}\n" for line in lines).encode()


def prepare_notice(conn: Connection, mirror: TableMirror, address: object) -> None:
    """Render the notice of a table whose files this process writes for the first time, to be written later."""
    if mirror.is_explained:
        return
    mirror.is_explained = True
    table = registry.table_by_id(conn, mirror.table.table_id)
    if table is not None and _is_fenced(table):
        mirror.notice = render_notice(table, registry.catalog_id(conn), address)


def put_notice(store: Store, mirror: TableMirror) -> None:
    """Write the rendered notice, unless another program's file has its name."""
    text, mirror.notice = mirror.notice, None
    if text is None:
        return
    folder = _open_folder(mirror.table, mirror.options)
    present = folder.read(NAME)
    if present == text or not (present is None or _is_ours(present)):
        return
    if present is None:
        folder.put(NAME, text, lasting=False, decides=False)
    else:  # the table was renamed
        folder.replace(NAME, text)
    with store.read(single=True) as conn:
        table = registry.table_by_id(conn, mirror.table.table_id)
    if table is None or not _is_fenced(table):  # detached or dropped meanwhile, perhaps after its notice was removed
        _remove(folder)


def remove_notice(table: TableRow, options: Mapping[str, str] | None) -> None:
    """Remove the notice of a table that is no longer fenced. A failure is logged."""
    try:
        _remove(_open_folder(table, options))
    except DeltaError as error:
        logger.warning("table %s: its notice is not removed: %s", table.full_name, redact(str(error)))


def read_notice(location: str, options: Mapping[str, str] | None) -> str | None:
    """The line of a folder's notice that names table and catalog; None if there is no notice of ours."""
    try:
        text = LogFolder(open_storage(location, options), table=location, folder=FOLDER).read(NAME)
    except DeltaError:
        return None
    return text.decode(errors="replace").splitlines()[1].rstrip(".") if text is not None and _is_ours(text) else None


def _remove(folder: LogFolder) -> None:
    present = folder.read(NAME)
    if present is not None and _is_ours(present):
        folder.delete(NAME)


def _open_folder(table: TableRow, options: Mapping[str, str] | None) -> LogFolder:
    return LogFolder(open_storage(table.location, options), table=table.full_name, folder=FOLDER)


def _is_ours(text: bytes) -> bool:
    return text.startswith(_FIRST_LINE.encode())


def _is_fenced(table: TableRow) -> bool:
    return table.mode == "managed" and table.state != "detaching"
