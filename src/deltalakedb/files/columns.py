"""Converts file actions, as checkpoint columns or as values, to batches of FILES_SCHEMA and TOMBSTONES_SCHEMA."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.files.render import json_maps, json_structs, sql_text
from deltalakedb.log.protocol.actions import AddFile, FileKey, RemoveFile
from deltalakedb.log.protocol.codec import may_contain, to_sql_text
from deltalakedb.log.protocol.fields import ADD, DELETION_VECTOR, REMOVE, REQUIRED, Field, Kind, Spec
from deltalakedb.log.protocol.paths import check_path
from deltalakedb.log.protocol.rows import adds_to_batch, removes_to_batch
from deltalakedb.log.protocol.txnlog import FILES_SCHEMA, TOMBSTONES_SCHEMA

BATCH_ROWS = 32_768
# Derived from other columns, so neither read nor kept.
PARSED_COLUMNS = frozenset({"stats_parsed", "partitionValues_parsed"})
_VECTOR_ORDER = tuple(field.name for field in DELETION_VECTOR.checkpoint_fields)
_SUSPICIOUS_PATH = r"\.\.|%2[eE]"


class KeyFilter:
    """Drops rows whose file key occurs in a later commit."""

    def __init__(self, keys: Collection[FileKey]) -> None:
        self._values = keys
        self._keys = pa.array([_key_text(*key) for key in keys], pa.string())

    def __contains__(self, key: FileKey) -> bool:
        return key in self._values

    def keep(self, keys: pa.Array) -> pa.Array | None:
        """A mask of the rows to keep; None if all are kept."""
        if len(self._keys) == 0:
            return None
        is_later = pc.is_in(keys, value_set=self._keys)
        return pc.invert(is_later) if pc.any(is_later).as_py() else None


def add_batch(adds: pa.StructArray, parsed_stats: pa.StructArray | None, later: KeyFilter | None) -> pa.RecordBatch:
    """A checkpoint's `add` column as FILES_SCHEMA, without rows of other actions; ValueError on invalid rows."""
    if parsed_stats is not None:
        mask = _find_present(adds)
        batch, keys = _convert(adds, FILES_SCHEMA, ADD)
        parsed = sql_text(json_structs(parsed_stats if mask is None else parsed_stats.filter(mask)))
        index = FILES_SCHEMA.get_field_index("stats")
        batch = batch.set_column(index, FILES_SCHEMA.field(index), pc.coalesce(batch.column(index), parsed))
    else:
        batch, keys = _convert(adds, FILES_SCHEMA, ADD)
    return _drop_later(batch, keys, later)


def remove_batch(removes: pa.StructArray, later: KeyFilter | None) -> pa.RecordBatch:
    """A checkpoint's `remove` column as TOMBSTONES_SCHEMA, without rows of other actions."""
    return _drop_later(*_convert(removes, TOMBSTONES_SCHEMA, REMOVE), later)


def _find_present(actions: pa.StructArray) -> pa.Array | None:
    """A mask of the rows that hold an action, by their required `path`; None if all do."""
    paths = pc.struct_field(actions, "path")
    return paths.is_valid() if paths.null_count else None


def _convert(actions: pa.StructArray, schema: pa.Schema, spec: Spec) -> tuple[pa.RecordBatch, pa.Array]:
    mask = _find_present(actions)
    if mask is not None:
        actions = actions.filter(mask)
    children = dict(zip((field.name for field in actions.type), actions.flatten(), strict=True))
    vectors = _vectors(children.get("deletionVector"))
    arrays: dict[str, pa.Array] = {"extra": _extra(children, {field.name for field in spec.fields})}
    for field in spec.fields:
        kind = schema.field(field.column).type
        child = vectors if field.kind is Kind.OBJECT else children.get(field.name)
        arrays[field.column] = _column(child, field, kind, len(actions))
    _check_paths(arrays["path"])
    keys = _keys(arrays["path"], vectors)
    return pa.record_batch([arrays[name] for name in schema.names], schema=schema), keys


def _column(child: pa.Array | None, field: Field, kind: pa.DataType, rows: int) -> pa.Array:
    if field.default is REQUIRED and (child is None or child.null_count):
        raise ValueError(f"field {field.column} is missing")
    default = "{}" if field.kind is Kind.MAP and field.default == {} else field.default
    if child is None:
        return pa.repeat(pa.scalar(default, kind), rows)
    if pa.types.is_map(child.type):
        child = json_maps(child)
    elif pa.types.is_struct(child.type):
        child = json_structs(child)
    elif pa.types.is_string(kind):
        child = sql_text(child)
    child = child.cast(kind)
    if default is not None and child.null_count:
        child = child.fill_null(default)
    child.validate(full=True)
    return child


def _vectors(vectors: pa.StructArray | None) -> pa.StructArray | None:
    """The deletion vectors with their fields in the protocol's order, null where there is none."""
    if vectors is None:
        return None
    children = dict(zip((field.name for field in vectors.type), vectors.flatten(), strict=True))
    if "storageType" not in children:
        return None
    ordered = [name for name in _VECTOR_ORDER if name in children]
    names = ordered + [name for name in children if name not in ordered]
    absent = children["storageType"].is_null()
    return pa.StructArray.from_arrays([children[name] for name in names], names, mask=absent)


def _keys(paths: pa.Array, vectors: pa.StructArray | None) -> pa.Array:
    if vectors is None or vectors.null_count == len(vectors):
        return pc.binary_join_element_wise(paths, "", "\0")
    kind, target = (sql_text(pc.struct_field(vectors, name)) for name in ("storageType", "pathOrInlineDv"))
    identity = pc.binary_join_element_wise(kind, target, "")
    if vectors.type.get_field_index("offset") >= 0:
        offset = pc.struct_field(vectors, "offset").cast(pa.string())
        identity = pc.coalesce(pc.binary_join_element_wise(identity, offset, "@"), identity)
    return pc.binary_join_element_wise(paths, identity.fill_null(""), "\0")


def _key_text(path: str, dv_id: str) -> str:
    return f"{to_sql_text(path)}\0{to_sql_text(dv_id)}"


def _extra(children: dict[str, pa.Array], known: set[str]) -> pa.Array:
    """Unknown fields as JSON, as far as their types allow."""
    rows = len(children["path"])
    unknown = [name for name in children if name not in known and name not in PARSED_COLUMNS]
    if not unknown or all(children[name].null_count == rows for name in unknown):
        return pa.repeat(pa.scalar(""), rows)
    texts = json_structs(pa.StructArray.from_arrays([children[name] for name in unknown], unknown))
    return pc.if_else(pc.equal(texts, "{}"), "", texts)


def _check_paths(paths: pa.Array) -> None:
    if not may_contain(paths, b"..", b"%2e", b"%2E"):
        return
    suspicious = pc.match_substring_regex(paths, _SUSPICIOUS_PATH)
    for path in paths.filter(suspicious).to_pylist():
        check_path(path)


def _drop_later(batch: pa.RecordBatch, keys: pa.Array, later: KeyFilter | None) -> pa.RecordBatch:
    mask = later.keep(keys) if later is not None else None
    return batch if mask is None else batch.filter(mask)


def batches_of_adds(adds: Iterable[AddFile]) -> Iterator[pa.RecordBatch]:
    return map(adds_to_batch, _in_batches(adds))


def batches_of_removes(removes: Iterable[RemoveFile]) -> Iterator[pa.RecordBatch]:
    return map(removes_to_batch, _in_batches(removes))


def _in_batches(actions: Iterable[Any]) -> Iterator[list[Any]]:
    remaining = iter(actions)
    while rows := list(islice(remaining, BATCH_ROWS)):
        yield rows
