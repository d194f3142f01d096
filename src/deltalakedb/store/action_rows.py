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
from deltalakedb.log.protocol.codec import deletion_vector_to_json, format_to_json, to_json
from deltalakedb.log.protocol.text import to_sql_text
from deltalakedb.store.connection import LIVE
from deltalakedb.store.rows import RowBuffer


class ActionRows:
    """One buffer per action table, for the rows of one Delta table."""

    def __init__(self, table_id: int) -> None:
        self._table_id = table_id
        self.adds = RowBuffer("dl_add_files")
        self._removes = RowBuffer("dl_remove_files")
        self._cdc = RowBuffer("dl_cdc_files")
        self._metadata = RowBuffer("dl_metadata_updates")
        self._protocols = RowBuffer("dl_protocol_updates")
        self._txns = RowBuffer("dl_txn_actions")
        self._domains = RowBuffer("dl_domain_metadata")
        self._others = RowBuffer("dl_other_actions")
        self.buffers = (
            self.adds,
            self._removes,
            self._cdc,
            self._metadata,
            self._protocols,
            self._txns,
            self._domains,
            self._others,
        )

    def __len__(self) -> int:
        return sum(map(len, self.buffers))

    def put_add(
        self, add: AddFile, version: int, ordinal: int, *, file_id: int, key_hash: bytes, num_records: int | None
    ) -> None:
        self.adds.append(
            table_id=self._table_id,
            version=version,
            ordinal=ordinal,
            file_id=file_id,
            removed_version=LIVE,
            path=to_sql_text(add.path),
            dv_id=to_sql_text(add.dv_id),
            key_hash=key_hash,
            size=add.size,
            modification_time=add.modification_time,
            data_change=add.data_change,
            num_records=num_records,
            partition_values=to_json(add.partition_values),
            stats=_text(add.stats),
            tags=_json(add.tags),
            deletion_vector=_deletion_vector(add),
            base_row_id=add.base_row_id,
            default_row_commit_version=add.default_row_commit_version,
            clustering_provider=_text(add.clustering_provider),
            extra=add.extra,
        )

    def put(self, action: Action, version: int, ordinal: int, *, fenced: bool = False) -> None:
        """Buffers any action but an add, which needs a file id. `fenced`: the mirror adds the fence to a protocol."""
        key = {"table_id": self._table_id, "version": version, "ordinal": ordinal}
        match action:
            case RemoveFile():
                self._put_remove(action, key)
            case AddCDCFile():
                self._cdc.append(
                    **key,
                    path=to_sql_text(action.path),
                    partition_values=to_json(action.partition_values),
                    size=action.size,
                    data_change=action.data_change,
                    tags=_json(action.tags),
                    extra=action.extra,
                )
            case Metadata():
                self._put_metadata(action, key)
            case Protocol():
                self._protocols.append(
                    **key,
                    min_reader_version=action.min_reader_version,
                    min_writer_version=action.min_writer_version,
                    reader_features=_json(action.reader_features),
                    writer_features=_json(action.writer_features),
                    fenced=fenced,
                    extra=action.extra,
                )
            case AppTransaction():
                self._txns.append(
                    **key,
                    app_id=to_sql_text(action.app_id),
                    app_version=action.version,
                    last_updated=action.last_updated,
                    extra=action.extra,
                )
            case DomainMetadata():
                self._domains.append(
                    **key,
                    domain=to_sql_text(action.domain),
                    configuration=to_sql_text(action.configuration),
                    removed=action.removed,
                    extra=action.extra,
                )
            case CommitInfo():
                self._others.append(**key, kind="commitInfo", action=action.text)
            case UnknownAction():
                self._others.append(**key, kind=to_sql_text(action.kind), action=action.text)
            case _:
                raise MalformedLogError(f"{type(action).__name__} belongs in a checkpoint, not in a commit")

    def _put_remove(self, remove: RemoveFile, key: dict[str, int]) -> None:
        self._removes.append(
            **key,
            path=to_sql_text(remove.path),
            dv_id=to_sql_text(remove.dv_id),
            deletion_timestamp=remove.deletion_timestamp,
            data_change=remove.data_change,
            extended_file_metadata=remove.extended_file_metadata,
            partition_values=_json(remove.partition_values),
            size=remove.size,
            stats=_text(remove.stats),
            tags=_json(remove.tags),
            deletion_vector=_deletion_vector(remove),
            base_row_id=remove.base_row_id,
            default_row_commit_version=remove.default_row_commit_version,
            extra=remove.extra,
        )

    def _put_metadata(self, metadata: Metadata, key: dict[str, int]) -> None:
        self._metadata.append(
            **key,
            metadata_id=to_sql_text(metadata.id),
            name=_text(metadata.name),
            description=_text(metadata.description),
            format=format_to_json(metadata.format),
            schema_json=to_sql_text(metadata.schema_string),
            partition_columns=to_json(metadata.partition_columns),
            configuration=to_json(metadata.configuration),
            created_time=metadata.created_time,
            extra=metadata.extra,
        )


def _text(value: str | None) -> str | None:
    return None if value is None else to_sql_text(value)


def _json(value: object | None) -> str | None:
    return None if value is None else to_json(value)


def _deletion_vector(action: AddFile | RemoveFile) -> str | None:
    return None if action.deletion_vector is None else deletion_vector_to_json(action.deletion_vector)
