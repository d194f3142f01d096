"""Converts actions to rows of SQL and of Arrow batches, and back, by the columns that `fields` describes.

Strings are encoded with `text.to_sql_text`; maps, lists and objects are JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from operator import attrgetter, itemgetter
from typing import Any

import pyarrow as pa

from deltalakedb.log.protocol.actions import (
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
from deltalakedb.log.protocol.codec import from_sql_text, parse_text, render_object, to_json, to_sql_text, to_sql_texts
from deltalakedb.log.protocol.fields import ADD, REMOVE, SPEC_OF, Field, Kind, Spec
from deltalakedb.log.protocol.txnlog import FILES_SCHEMA, TOMBSTONES_SCHEMA

Values = Mapping[str, Any]
"""A row by column name; it may have other columns too."""


Converters = tuple[tuple[int, Callable[[Any], Any]], ...]
"""The places of a row whose values are converted, unless they are None, and how."""


@dataclass(frozen=True, slots=True)
class RowForm:
    """How actions of one kind are rows; everything is looked up beforehand, because rows can be many."""

    build: Callable[..., Any]
    columns: tuple[str, ...]
    get_values: Callable[[Any], tuple[Any, ...]]
    get_cells: Callable[[Values], tuple[Any, ...]]
    encoders: Converters
    decoders: Converters

    def to_cells(self, action: object) -> list[Any]:
        """The action as a row, in the order of `columns`."""
        cells = list(self.get_values(action))
        for place, encode in self.encoders:
            value = cells[place]
            if value is not None:
                cells[place] = encode(value)
        return cells

    def from_row(self, row: Values) -> Any:
        cells = list(self.get_cells(row))
        for place, decode in self.decoders:
            cell = cells[place]
            if cell is not None:
                cells[place] = decode(cell)
        return self.build(*cells)


@cache
def row_form(build: type) -> RowForm:
    """The form of the rows of one dataclass of actions."""
    spec = SPEC_OF[build]
    return RowForm(
        build,
        spec.columns,
        attrgetter(*(field.attribute for field in spec.fields), "extra"),
        itemgetter(*spec.columns),
        tuple((place, encode) for place, field in enumerate(spec.fields) if (encode := _encoder(field))),
        tuple((place, decode) for place, field in enumerate(spec.fields) if (decode := _decoder(field))),
    )


def _encoder(field: Field) -> Callable[[Any], Any] | None:
    match field.kind:
        case Kind.TEXT:
            return to_sql_text
        case Kind.MAP | Kind.LIST:
            return to_json
        case Kind.OBJECT:
            assert field.nested is not None
            return partial(render_object, field.nested)
        case _:
            return None


def _decoder(field: Field) -> Callable[[Any], Any] | None:
    match field.kind:
        case Kind.TEXT:
            return from_sql_text
        case Kind.MAP:
            return json.loads
        case Kind.LIST:
            return lambda text: tuple(json.loads(text))
        case Kind.OBJECT:
            assert field.nested is not None
            return lru_cache(maxsize=64)(
                partial(parse_text, field.nested)
            )  # a table's format is nearly always the same
        case _:
            return None


add_from_row: Callable[[Values], AddFile] = row_form(AddFile).from_row
remove_from_row: Callable[[Values], RemoveFile] = row_form(RemoveFile).from_row
cdc_from_row: Callable[[Values], AddCDCFile] = row_form(AddCDCFile).from_row
metadata_from_row: Callable[[Values], Metadata] = row_form(Metadata).from_row
protocol_from_row: Callable[[Values], Protocol] = row_form(Protocol).from_row
app_transaction_from_row: Callable[[Values], AppTransaction] = row_form(AppTransaction).from_row
domain_metadata_from_row: Callable[[Values], DomainMetadata] = row_form(DomainMetadata).from_row


def other_from_row(row: Values) -> CommitInfo | UnknownAction:
    """A second commitInfo of a commit, or an action of an unknown kind."""
    kind = from_sql_text(row["kind"])
    return CommitInfo(row["action"]) if kind == "commitInfo" else UnknownAction(kind, row["action"])


def adds_to_batch(adds: Iterable[AddFile]) -> pa.RecordBatch:
    """Builds one row of FILES_SCHEMA for each add."""
    return _to_batch(ADD, list(adds), FILES_SCHEMA)


def removes_to_batch(removes: Iterable[RemoveFile]) -> pa.RecordBatch:
    """Builds one row of TOMBSTONES_SCHEMA for each remove."""
    return _to_batch(REMOVE, list(removes), TOMBSTONES_SCHEMA)


def adds_from_batch(batch: pa.RecordBatch) -> Iterator[AddFile]:
    """The inverse of `adds_to_batch`."""
    return map(add_from_row, batch.to_pylist())


def removes_from_batch(batch: pa.RecordBatch) -> Iterator[RemoveFile]:
    """The inverse of `removes_to_batch`."""
    return map(remove_from_row, batch.to_pylist())


def _to_batch(spec: Spec, actions: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    columns: dict[str, Sequence[Any]] = {"extra": [action.extra for action in actions]}
    for field in spec.fields:
        columns[field.column] = _encode_column(field, list(map(attrgetter(field.attribute), actions)))
    return pa.RecordBatch.from_pydict(columns, schema=schema)


def _encode_column(field: Field, values: list[Any]) -> Sequence[Any]:
    """Applies the field's encoder to a column."""
    if field.kind is Kind.TEXT:
        return to_sql_texts(values)
    if field.kind is Kind.MAP:
        return _encode_maps(values)
    encode = _encoder(field)
    return values if encode is None else [None if value is None else encode(value) for value in values]


def _encode_maps(values: Sequence[Mapping[str, str | None] | None]) -> list[str | None]:
    """The JSON of each map; equal maps (including their order) are rendered once."""
    text_by_items: dict[tuple[tuple[str, str | None], ...], str] = {}
    texts: list[str | None] = []
    for value in values:
        if value is None:
            texts.append(None)
            continue
        key = tuple(value.items())
        text = text_by_items.get(key)
        if text is None:
            text = text_by_items[key] = to_json(dict(value))
        texts.append(text)
    return texts
