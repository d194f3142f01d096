"""Small histories of tables, loaded into SQL, for the tests of what is read from there."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from deltalakedb.log.protocol.actions import Action, AddFile, CommitInfo, Format, Metadata, Protocol, RemoveFile
from deltalakedb.log.protocol.commit import Commit
from deltalakedb.store import Store
from deltalakedb.store import registry as reg
from deltalakedb.store.loader import BaseState, Loader

SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "day", "type": "string", "nullable": True, "metadata": {}},
    ],
}
PROTOCOL = Protocol(1, 2)
METADATA = Metadata("id-1", Format(), json.dumps(SCHEMA), ("day",), {"delta.appendOnly": "false"}, "orders", None, 5)


def add(path: str, *, day: str = "mon", low: int = 0, high: int = 9, size: int = 100, **fields: Any) -> AddFile:
    stats = {"numRecords": 10, "minValues": {"id": low}, "maxValues": {"id": high}, "nullCount": {"id": 0}}
    values: dict[str, Any] = {"stats": json.dumps(stats), **fields}
    return AddFile(path, {"day": day}, size, 1_700_000_000_000, True, **values)


def remove(path: str, **fields: Any) -> RemoveFile:
    return RemoveFile(path, True, 1_700_000_000_000, **fields)


def info(operation: str) -> CommitInfo:
    return CommitInfo(json.dumps({"operation": operation, "operationParameters": {"mode": "x"}}))


def register(store: Store, name: str = "orders") -> reg.TableRow:
    with store.write() as conn:
        return reg.register_table(
            conn, namespace="sales", name=name, location=f"/lake/{name}", mode="follower", at_ms=conn.now_ms()
        )


def load(
    store: Store,
    table: reg.TableRow,
    commits: Iterable[Sequence[Action]],
    *,
    start: int = 0,
    base: BaseState | None = None,
    first_ms: int = 1000,
) -> list[Commit]:
    """Load commits, numbered from `start` and 1000 ms apart, after a base if there is one."""
    made = [
        Commit(version, first_ms + version * 1000, tuple(actions), None)
        for version, actions in enumerate(commits, start=start)
    ]
    with store.write() as conn:
        head = reg.lock_head(conn, table.table_id)
        loader = Loader(conn, table.table_id, table=table.full_name, head=head, metadata=METADATA if head else None)
        if base is not None:
            loader.load_base(base)
        for commit in made:
            loader.append(commit)
        loader.finish()
    return made
