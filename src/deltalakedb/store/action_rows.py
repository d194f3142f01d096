"""Converts actions to rows of their SQL tables, and buffers the rows."""

from deltalakedb.exceptions import MalformedLogError
from deltalakedb.log.protocol.actions import (
    Action,
    AddCDCFile,
    AddFile,
    AppTransaction,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    UnknownAction,
)
from deltalakedb.log.protocol.codec import to_sql_text
from deltalakedb.log.protocol.rows import row_form
from deltalakedb.store.connection import LIVE
from deltalakedb.store.rows import RowBuffer

TABLES: dict[type, str] = {
    AddFile: "dl_add_files",
    RemoveFile: "dl_remove_files",
    AddCDCFile: "dl_cdc_files",
    Metadata: "dl_metadata_updates",
    Protocol: "dl_protocol_updates",
    AppTransaction: "dl_txn_actions",
    DomainMetadata: "dl_domain_metadata",
}
"""The table of each kind of action; dl_other_actions has the rest."""

_KEY = ("table_id", "version", "ordinal")
_FORMS = {kind: row_form(kind) for kind in TABLES}
_ADD = _FORMS[AddFile]
_ADD_COLUMNS = (*_KEY, "file_id", "removed_version", "dv_id", "key_hash", "num_records", *_ADD.columns)


class ActionRows:
    """One buffer per action table, for the rows of one Delta table."""

    def __init__(self, table_id: int) -> None:
        self._table_id = table_id
        self._by_kind = {kind: RowBuffer(table) for kind, table in TABLES.items()}
        self._others = RowBuffer("dl_other_actions")
        self.adds = self._by_kind[AddFile]
        self.buffers = (*self._by_kind.values(), self._others)

    def __len__(self) -> int:
        return sum(map(len, self.buffers))

    def put_add(
        self, add: AddFile, version: int, ordinal: int, *, file_id: int, key_hash: bytes, num_records: int | None
    ) -> None:
        dv_id = to_sql_text(add.dv_id)
        cells = (self._table_id, version, ordinal, file_id, LIVE, dv_id, key_hash, num_records, *_ADD.to_cells(add))
        self.adds.append_cells(_ADD_COLUMNS, cells)

    def put(self, action: Action, version: int, ordinal: int, *, fenced: bool = False) -> None:
        """Buffers any action but an add, which needs a file id. `fenced`: the mirror adds the fence to a protocol."""
        key = (self._table_id, version, ordinal)
        match action:
            case CommitInfo():
                self._others.append_cells((*_KEY, "kind", "action"), (*key, "commitInfo", action.text))
            case UnknownAction():
                self._others.append_cells((*_KEY, "kind", "action"), (*key, to_sql_text(action.kind), action.text))
            case RemoveFile():
                self._put(action, key, dv_id=to_sql_text(action.dv_id))
            case Protocol():
                self._put(action, key, fenced=fenced)
            case AddCDCFile() | Metadata() | AppTransaction() | DomainMetadata():
                self._put(action, key)
            case _:
                raise MalformedLogError(f"{type(action).__name__} belongs in a checkpoint, not in a commit")

    def _put(self, action: Action, key: tuple[int, int, int], **others: object) -> None:
        form = _FORMS[type(action)]
        cells = (*key, *others.values(), *form.to_cells(action))
        self._by_kind[type(action)].append_cells((*_KEY, *others, *form.columns), cells)
