"""What a catalog really holds: registry, heads, locations and live files from SQL, and what lies in the folders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

import deltalake

from deltalakedb import Catalog
from deltalakedb.store.connection import LIVE, Row
from tests.conformance.catalog_model import Rows

_TABLES = """
select l.location, l.table_uuid, l.location_state, t.files_owner, l.table_id, l.table_name,
       t.namespace, t.name, t.mode, t.state, h.current_version, h.mirrored_version
from dl_locations l
left join dl_tables t on t.table_id = l.table_id
     and t.from_ms = (select max(n.from_ms) from dl_tables n where n.table_id = l.table_id)
left join dl_table_heads h on h.table_id = l.table_id
order by l.location
"""
_LIVE_FILES = f"select table_id, path from dl_add_files where removed_version = {LIVE}"
_REGISTERED = f"select table_uuid from dl_tables where until_ms = {LIVE}"


@dataclass(frozen=True, slots=True)
class Located:
    """A row of dl_locations, and the table it belongs to, if that was ever registered."""

    uuid: str
    location_state: str
    files_owner: str | None
    folder: Path
    name: str
    mode: str | None
    state: str | None
    version: int
    mirrored_version: int
    files: frozenset[str]


@dataclass(frozen=True, slots=True)
class Facts:
    """Every location with its owner."""

    located: tuple[Located, ...]
    registered: frozenset[str]
    """The tables (uuids) that have a name now."""

    @property
    def live(self) -> dict[str, Located]:
        return {one.name: one for one in self.located if one.uuid in self.registered}

    @property
    def dropped(self) -> list[Located]:
        return [one for one in self.located if one.location_state == "dropped"]

    def at(self, folder: Path) -> Located | None:
        return next((one for one in self.located if one.folder == folder), None)


def read_facts(catalog: Catalog) -> Facts:
    with catalog.store.read() as conn:
        tables, live_files, registered = (conn.sql(text) for text in (_TABLES, _LIVE_FILES, _REGISTERED))
    files: dict[int, set[str]] = {}
    for row in live_files:
        files.setdefault(row["table_id"], set()).add(unquote(row["path"]))
    return Facts(
        tuple(_to_located(row, files) for row in tables), frozenset(str(row["table_uuid"]) for row in registered)
    )


def _to_located(row: Row, files: dict[int, set[str]]) -> Located:
    is_live = row["location_state"] == "live"
    return Located(
        uuid=row["table_uuid"],
        location_state=row["location_state"],
        files_owner=row["files_owner"],
        folder=to_path(row["location"]),
        name=f"{row['namespace']}.{row['name']}" if is_live else row["table_name"],
        mode=row["mode"],
        state=row["state"],
        version=-1 if row["current_version"] is None else row["current_version"],
        mirrored_version=-1 if row["mirrored_version"] is None else row["mirrored_version"],
        files=frozenset(files.get(row["table_id"], ())),
    )


def to_path(location: str) -> Path:
    return Path(unquote(urlparse(location).path).rstrip("/"))


@dataclass(frozen=True, slots=True)
class Mirrored:
    """A table as `deltalake` finds it in its files."""

    version: int
    files: frozenset[str]


def open_files(folder: Path) -> Mirrored | None:
    """None where no commit is yet."""
    if not any((folder / "_delta_log").glob("*.json")):
        return None
    table = deltalake.DeltaTable(folder)
    paths = (to_path(uri) if "://" in uri else Path(uri) for uri in table.file_uris())
    return Mirrored(table.version(), frozenset(str(path.relative_to(folder)) for path in paths))


def rows_in_files(folder: Path) -> Rows:
    return tuple(sorted(deltalake.DeltaTable(folder).to_pyarrow_table().column("id").to_pylist()))


def files_below(root: Path) -> Iterator[Path]:
    return (path for path in root.rglob("*") if path.is_file())
