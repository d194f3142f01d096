"""Statements on plain paths for tests: small verbs, tables begun by them, and who reads them back."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

import deltalakedb as dl
from deltalakedb.log.predicates.predicate import parse_predicate
from deltalakedb.log.protocol.actions import RemoveFile
from deltalakedb.log.protocol.proposal import NOTHING_READ, ProposedCommit, ReadSet
from deltalakedb.log.protocol.rows import add_from_row
from deltalakedb.operations.definition import new_table, to_schema
from deltalakedb.operations.target import Done, Target, Verb
from deltalakedb.operations.write import write_rows
from deltalakedb.tables.file_backing import FileBacking, create_at
from deltalakedb.transaction import CommitProperties, PostCommitHookProperties

Options = Mapping[str, str] | None


def rows(*ids: int, day: str = "d1") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "day": pa.array([day] * len(ids), pa.string())})


def append(data: pa.Table) -> Verb:
    def verb(target: Target) -> Done:
        adds = write_rows(target, data)
        metrics = {"num_added_files": len(adds), "num_retries": 0}
        return Done(ProposedCommit(tuple(adds), "WRITE", {"mode": "Append"}, metrics), metrics)

    return verb


def remove_where(condition: str) -> Verb:
    """Whole files that may match go; what was read is the condition."""

    def verb(target: Target) -> Done:
        predicate = parse_predicate(condition, target.schema, target.metadata.partition_columns)
        found = [add_from_row(row) for row in target.plan(predicate).to_pylist()]
        removes = tuple(RemoveFile.of(add, at_ms=time.time_ns() // 1_000_000) for add in found)
        read = ReadSet(predicates=(predicate,))
        return Done(ProposedCommit(removes, "DELETE", {"predicate": condition}, {}, read), {"removed": len(removes)})

    return verb


def noting(*actions: Any, operation: str = "SET TBLPROPERTIES") -> Verb:
    return lambda _: Done(ProposedCommit(tuple(actions), operation, read=NOTHING_READ))


def racing(verb: Verb, *others: Callable[[], Any]) -> Verb:
    """The verb, with others committing after it has looked at the table and before it commits."""

    def raced(target: Target) -> Done:
        done = verb(target)
        for other in others:
            other()
        return done

    return raced


def run(
    place: str | os.PathLike[str],
    verb: Verb,
    options: Options = None,
    properties: CommitProperties | None = None,
    hooks: PostCommitHookProperties | None = None,
) -> dict[str, Any]:
    backing = FileBacking(place, options)
    return backing.run(verb, properties or CommitProperties(), hooks or PostCommitHookProperties())


def begin(
    place: str | os.PathLike[str],
    data: pa.Table,
    options: Options = None,
    *,
    partition_by: tuple[str, ...] = (),
    properties: Mapping[str, str] | None = None,
) -> None:
    """A new table with these rows as its version 0."""
    first = new_table(
        to_schema(data.schema),
        partition_by,
        properties or {},
        table=str(place),
        name="",
        description=None,
        created_ms=time.time_ns() // 1_000_000,
    )
    create_at(place, first, append(data), options)


def our_ids(place: str | os.PathLike[str], options: Options = None) -> list[int]:
    return sorted(dl.DeltaTable(place, storage_options=options).to_pyarrow_table().column("id").to_pylist())


def their_ids(place: str | os.PathLike[str], options: Options = None) -> list[int]:
    table = deltalake.DeltaTable(place, storage_options=dict(options) if options else None)
    return sorted(table.to_pyarrow_table().column("id").to_pylist())


def commit_lines(place: Path, version: int) -> list[dict[str, Any]]:
    text = (place / "_delta_log" / f"{version:020d}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def commit_info(place: Path, version: int) -> dict[str, Any]:
    return next(line["commitInfo"] for line in commit_lines(place, version) if "commitInfo" in line)


def data_files(place: Path) -> set[str]:
    return {path.name for path in place.rglob("*.parquet") if "_delta_log" not in path.parts}
