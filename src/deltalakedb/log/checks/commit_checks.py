"""Checks a proposed commit before it reaches SQL: the rules of the protocol, and those of the table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from functools import lru_cache
from typing import Final, NoReturn

from deltalakedb.exceptions import InvalidCommitError, MalformedLogError, redact
from deltalakedb.log.checks.secret_checks import refuse_new_secrets
from deltalakedb.log.checks.table_checks import check_metadata, check_protocol, check_rewritten
from deltalakedb.log.protocol.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    RemoveFile,
    Sidecar,
    UnknownAction,
)
from deltalakedb.log.protocol.commit import CommitChecker
from deltalakedb.log.protocol.features import check_writable, is_enabled, writer_features
from deltalakedb.log.protocol.paths import decode_path, is_absolute, resolve
from deltalakedb.log.schema.partitions import PartitionField, partition_fields, wrong_partition_value
from deltalakedb.log.statistics.stats import record_count

IsLive = Callable[[Collection[FileKey]], Set[FileKey]]
"""Returns those of the given files that are live in the table before the commit."""

_SYSTEM_DOMAINS: Final = {"delta.rowTracking": "rowTracking", "delta.clustering": "clustering"}
_NO_VECTORS: Final = ("delta.enableIcebergCompatV1", "delta.enableIcebergCompatV2")
_VECTOR_KINDS: Final = ("u", "i", "p")
_LOG_FOLDER: Final = "_delta_log"
_SIGNS: Final = ("\n/", "\n_", "\n.", "\n%", "\n\n", ":", "/.")
"""If none of these occurs in a list of paths, each after a line break, no path needs a closer check."""


def check_commit(
    actions: Sequence[Action],
    *,
    protocol: Protocol | None,
    metadata: Metadata | None,
    table: str,
    version: int,
    is_live: IsLive | None = None,
    location: str | None = None,
    live_files: int | None = None,
    replaces: bool = False,
    drops_feature: bool = False,
    restores: bool = False,
    clones: bool = False,
) -> None:
    """Raises InvalidCommitError, UnsupportedFeatureError or SchemaMismatchError if the actions must not be committed,
    ConfigError if a metaData action sets something that looks like a credential.

    `protocol` and `metadata` are those before the commit, None for a table's first one. `is_live` is called once, with
    all keys; None leaves that check to the caller that locks the table. `location`: absolute paths inside it belong to
    the table. `live_files`: the table's number of files, if known; a commit that changes how rows are stored in files
    must then replace them all. `replaces`: the commit replaces the table with another one (REPLACE TABLE).
    `drops_feature`: an engine has removed all uses of a feature and drops it from the protocol (DROP FEATURE).
    `restores`: the metadata and files are those of an older version (RESTORE), so nothing in them is new to the log.
    `clones`: files may be outside of the location, by absolute paths (SHALLOW CLONE, AddAction).
    """
    where = f"table {table}, version {version}"
    checker = CommitChecker(table, version)
    try:
        checker.see_all(actions)
    except MalformedLogError as error:
        raise InvalidCommitError(f"{error}; nothing was committed") from error
    by_kind = _ActionsByKind(actions, where)
    new_protocol = by_kind.protocol or protocol
    new_metadata = by_kind.metadata or metadata
    if new_protocol is None or new_metadata is None:
        missing = "protocol" if new_protocol is None else "metaData"
        _refuse(where, f"begins the table and holds no {missing} action", "give it both, protocol and metaData")
    check_writable(new_protocol, table)
    if new_protocol is not protocol:
        check_protocol(new_protocol, protocol, where, drops=drops_feature)
    if new_protocol is not protocol or new_metadata is not metadata:
        check_metadata(new_metadata, metadata, new_protocol, protocol, where, replaces=replaces or restores)
        if metadata is not None and live_files is not None:
            remaining = live_files - len(by_kind.removes)
            check_rewritten(new_metadata, metadata, new_protocol, protocol, remaining, where)
    if new_metadata is not metadata and not restores:
        refuse_new_secrets(new_metadata, metadata, what=where)
    rules = _FileRules(new_protocol, new_metadata, metadata or new_metadata, where, location)
    rules.check(by_kind, may_be_elsewhere=restores or clones)
    if is_live is not None:
        _check_live(by_kind, is_live, where)


class _ActionsByKind:
    """The actions by kind; rejects kinds that a proposed commit cannot hold."""

    def __init__(self, actions: Sequence[Action], where: str) -> None:
        self.adds: list[AddFile] = []
        self.removes: list[RemoveFile] = []
        self.cdc: list[AddCDCFile] = []
        self.domains: list[DomainMetadata] = []
        self.protocol: Protocol | None = None
        self.metadata: Metadata | None = None
        for action in actions:
            match action:
                case AddFile():
                    self.adds.append(action)
                case RemoveFile():
                    self.removes.append(action)
                case AddCDCFile():
                    self.cdc.append(action)
                case DomainMetadata():
                    self.domains.append(action)
                case Protocol():
                    self.protocol = action
                case Metadata():
                    self.metadata = action
                case CommitInfo():
                    _refuse(
                        where, "holds a commitInfo", "leave it out: the catalog writes it; own fields are user_info"
                    )
                case Sidecar() | CheckpointMetadata():
                    _refuse(where, "holds an action that belongs into checkpoints", "leave it out")
                case UnknownAction():
                    _refuse(where, f"holds an action of the unknown kind {action.kind}", "leave it out")
                case _:
                    pass


class _FileRules:
    """The rules for file actions."""

    def __init__(
        self, protocol: Protocol, metadata: Metadata, before: Metadata, where: str, location: str | None
    ) -> None:
        self._features = writer_features(protocol)
        self._configuration = metadata.configuration
        self._before = before
        self._where = where
        self._location = location
        self._fields = _fields(metadata.schema_string, metadata.partition_columns) if metadata.partition_columns else ()

    def check(self, actions: _ActionsByKind, *, may_be_elsewhere: bool) -> None:
        """`may_be_elsewhere`: absolute paths outside of the table's location are allowed."""
        removed = {remove.path for remove in actions.removes}
        self._check_once(actions.adds, "adds")
        self._check_once(actions.removes, "removes")
        self._check_paths(actions.adds, {add.path for add in actions.adds} if may_be_elsewhere else removed)
        self._check_paths(actions.cdc, set())
        self._check_partitions(actions.adds)
        self._check_partitions(actions.cdc)
        for add in actions.adds:
            if add.size < 0:
                self._refuse(f"adds {add.path} with the size {add.size}", "give the file's size in bytes")
            if add.deletion_vector is not None:
                self._check_vector(add, add.deletion_vector)
        if actions.removes:
            self._check_removes(actions.removes)
        if actions.cdc:
            self._check_cdc(actions.cdc)
        for domain in actions.domains:
            self._check_domain(domain)

    def _check_once(self, files: Sequence[AddFile] | Sequence[RemoveFile], what: str) -> None:
        """One path is one file, whatever its deletion vector (PROTOCOL.md, "Action Reconciliation")."""
        if len({file.path for file in files}) == len(files):
            return
        paths: set[str] = set()
        for file in files:
            if file.path in paths:
                self._refuse(f"{what} the file {file.path} twice", "name each file once")
            paths.add(file.path)

    def _check_paths(self, files: Sequence[AddFile] | Sequence[AddCDCFile], known: Set[str]) -> None:
        paths = [file.path for file in files]
        # Nearly all paths are plain: only the others are checked one by one.
        together = "\n".join(["", *paths, ""])
        if not any(sign in together for sign in _SIGNS):
            return
        for path in paths:
            if path and path[0] not in "/_.%" and ":" not in path and "/." not in path:
                continue
            self._check_path(path, known=path in known)

    def _check_path(self, path: str, *, known: bool) -> None:
        plain = decode_path(path)
        if not plain:
            self._refuse("names a file without a path", "give each file its path below the table's location")
        if is_absolute(path):
            # If a file outside of the location (of a clone) gets a deletion vector, its add repeats the absolute path.
            if not known and not self._is_inside(path):
                self._refuse(
                    f"adds {path}, which lies outside of the table's location", "put the file below it, and name it so"
                )
        elif plain.split("/")[0].lower() == _LOG_FOLDER:
            self._refuse(f"adds {path}, which is part of the log", "put data files elsewhere")
        elif "." in plain.split("/"):
            self._refuse(f"adds {path}, a path with an idle dot", "name each file by one spelling, without ./")

    def _is_inside(self, path: str) -> bool:
        if self._location is None:
            return False
        root, target = self._location.rstrip("/") + "/", resolve(self._location, path)
        return target.startswith(root) and ".." not in decode_path(target).split("/")

    def _check_partitions(self, files: Sequence[AddFile] | Sequence[AddCDCFile]) -> None:
        names = {field.name for field in self._fields}
        valid_values: list[set[str | None]] = [set() for _ in self._fields]
        if not names and not any(file.partition_values for file in files):
            return
        for file in files:
            values = file.partition_values
            if values.keys() != names:
                self._refuse_keys(file.path, values)
            for field, valid in zip(self._fields, valid_values, strict=True):
                value = values[field.name]
                if value not in valid:
                    problem = wrong_partition_value(value, field)
                    if problem:
                        self._refuse(
                            f"gives {file.path} a wrong partition value: {problem}", "write it as its type asks"
                        )
                    valid.add(value)

    def _refuse_keys(self, path: str, values: Mapping[str, str | None]) -> NoReturn:
        expected = ", ".join(field.name for field in self._fields) or "none"
        names = ", ".join(values) or "none"
        self._refuse(
            f"gives {path} partition values of {names}, and the table's partition columns are {expected}",
            "give one value for each of them, by its physical name",
        )

    def _check_vector(self, add: AddFile, vector: DeletionVector) -> None:
        if "deletionVectors" not in self._features:
            self._refuse(
                f"adds {add.path} with a deletion vector, and the protocol has no feature deletionVectors",
                "set delta.enableDeletionVectors first, or rewrite the file",
            )
        if any(is_enabled(self._configuration, name) for name in _NO_VECTORS):
            self._refuse(f"adds {add.path} with a deletion vector, which Iceberg V1 and V2 do not know", "rewrite it")
        if vector.storage_type not in _VECTOR_KINDS or vector.size_in_bytes < 0 or vector.cardinality < 0:
            self._refuse(f"gives {add.path} a deletion vector that is none: {vector}", "check where it comes from")
        records = record_count(add.stats)
        if records is None:
            self._refuse(
                f"adds {add.path} with a deletion vector and without numRecords in its statistics", "add that number"
            )
        if vector.cardinality > records:
            self._refuse(f"deletes {vector.cardinality} of {records} rows of {add.path}", "check its deletion vector")

    def _check_removes(self, removes: Sequence[RemoveFile]) -> None:
        names = {field.name for field in self._fields}
        append_only = is_enabled(self._before.configuration, "delta.appendOnly")
        same_partitions = self._before.partition_columns == tuple(field.column for field in self._fields)
        for remove in removes:
            if append_only and remove.data_change:
                self._refuse(
                    f"deletes {remove.path} from an append-only table",
                    "set delta.appendOnly to false first, if you may",
                )
            if remove.partition_values and same_partitions and remove.partition_values.keys() != names:
                self._refuse_keys(remove.path, remove.partition_values)
            if remove.size is not None and remove.size < 0:
                self._refuse(f"removes {remove.path} with the size {remove.size}", "give its size in bytes, or none")

    def _check_cdc(self, files: Sequence[AddCDCFile]) -> None:
        if "changeDataFeed" not in self._features or not is_enabled(self._configuration, "delta.enableChangeDataFeed"):
            self._refuse(
                f"holds the change data file {files[0].path}, and the table has no change data feed",
                "leave it out, or set delta.enableChangeDataFeed first",
            )
        for file in files:
            if file.data_change or file.size < 0:
                self._refuse(f"holds the change data file {file.path} as a change of data, or of no size", "correct it")

    def _check_domain(self, domain: DomainMetadata) -> None:
        if "domainMetadata" not in self._features:
            self._refuse(
                f"writes the metadata domain {domain.domain}, and the protocol has no feature domainMetadata",
                "add the feature to the protocol first",
            )
        if domain.domain.startswith("delta.") and _SYSTEM_DOMAINS.get(domain.domain) not in self._features:
            self._refuse(f"writes the domain {domain.domain}, which belongs to Delta", "choose another name for it")

    def _refuse(self, what: str, advice: str) -> NoReturn:
        _refuse(self._where, what, advice)


@lru_cache(maxsize=64)
def _fields(schema_string: str, partition_columns: tuple[str, ...]) -> tuple[PartitionField, ...]:
    return partition_fields(schema_string, partition_columns)


def _check_live(actions: _ActionsByKind, is_live: IsLive, where: str) -> None:
    removed = {remove.key for remove in actions.removes if not remove.ends_vectors}
    paths = {remove.path for remove in actions.removes}
    # A file that gets a deletion vector must be removed under its old key, or the table would hold it twice.
    bare = {(add.path, "") for add in actions.adds if add.deletion_vector is not None and add.path not in paths}
    if not removed and not bare:
        return
    live = is_live(removed | bare)
    missing = sorted(removed - live)
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        _refuse(
            where, f"removes {missing[0][0]}{more}, which is not in the table", "open the table again and repeat it"
        )
    twice = sorted(bare & live)
    if twice:
        _refuse(where, f"adds {twice[0][0]} with a deletion vector beside the whole file", "remove that in this commit")


def _refuse(where: str, what: str, advice: str) -> NoReturn:
    raise InvalidCommitError(redact(f"{where}: the commit {what}; nothing was committed: {advice}"))
