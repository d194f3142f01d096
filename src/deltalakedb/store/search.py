"""Finds tables by words in their names, columns, comments and tags, from the metadata at their heads.

One query for each format reads all tables that may match: it searches the stored texts for one word, as plain ASCII.
The results are filtered here, with Unicode case rules and parsed JSON.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltalakedb.log.checks.properties import TAG_PREFIX, comment_of, tags_of
from deltalakedb.log.protocol.codec import from_sql_text
from deltalakedb.log.protocol.features import every_field
from deltalakedb.log.schema.types import parse_schema
from deltalakedb.store.connection import Connection, Row
from deltalakedb.store.names import TableName, name_key

_PLAIN_RUN = re.compile(r"[A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class ColumnHit:
    """A column with a match; `column` is its dotted path."""

    column: str
    comment: str | None
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A table with a match: its comment and tags, and where the words or the tag were found."""

    table: str
    comment: str | None
    tags: Mapping[str, str]
    columns: tuple[ColumnHit, ...] = ()
    """The columns with a match, including nested ones."""
    found_in: tuple[str, ...] = ()
    """`name`, `comment`, `tag pii`, `column note`, `comment on note`, `tag pii on note`."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The search: all of the words, and the tag."""

    words: tuple[str, ...] = ()
    tag: str | None = None
    tag_value: str | None = None

    @classmethod
    def of(cls, text: str | None, tag: str | None) -> "Wanted":
        name, equals, value = (tag or "").partition("=")
        return cls(
            tuple(word.lower() for word in (text or "").split()),
            name.strip().lower() if tag is not None else None,
            value.strip().lower() if equals else None,
        )

    def is_tag(self, name: str, value: str) -> bool:
        return name.lower() == self.tag and self.tag_value in (None, value.lower())


@dataclass(frozen=True, slots=True)
class _Place:
    """A text or tag to search."""

    label: str
    text: str
    column: str | None = None
    tag: tuple[str, str] | None = None


def search_tables(conn: Connection, wanted: Wanted, namespace: str | None = None) -> list[SearchHit]:
    """The tables that have the tag and every word, by namespace and name. An empty search returns all tables."""
    key = None if namespace is None else name_key(namespace)
    within = {
        "namespace_key": key,
        # Names inside begin with the key and a dot; a slash is the next character after the dot.
        "first_inside": None if key is None else f"{key}.",
        "after_inside": None if key is None else f"{key}/",
    }
    word = _pattern("", wanted.words)
    tag = _pattern(TAG_PREFIX, [wanted.tag] if wanted.tag else [])
    described = [_delta(row) for row in conn.all("select_described_tables", word=word, tag=tag, **within)]
    if wanted.tag is None:  # Iceberg has no tags on tables and columns
        described += [_iceberg(row) for row in conn.all("select_described_iceberg", word=word, **within)]
    hits = (_judge(one, wanted) for one in sorted(described, key=lambda one: one.name.key))
    return [hit for hit in hits if hit is not None]


@dataclass(frozen=True, slots=True)
class _Described:
    """A table with its texts."""

    name: TableName
    comment: str | None
    tags: Mapping[str, str]
    columns: list[ColumnHit]


def _delta(row: Row) -> _Described:
    columns = [
        ColumnHit(path, comment_of(item), tags_of(item.metadata))
        for path, item in every_field(parse_schema(from_sql_text(row["schema_json"])))
    ]
    comment = None if row["description"] is None else from_sql_text(row["description"])
    return _Described(
        TableName(row["namespace"], row["name"]), comment, tags_of(json.loads(row["configuration"])), columns
    )


def _iceberg(row: Row) -> _Described:
    metadata = json.loads(row["metadata"])
    schema_id = metadata.get("current-schema-id")
    if schema_id is None:  # of a view
        current = metadata.get("current-version-id")
        schema_id = next((v.get("schema-id") for v in metadata["versions"] if v["version-id"] == current), None)
    schema = next((schema for schema in metadata["schemas"] if schema.get("schema-id") == schema_id), None)
    comment = metadata.get("properties", {}).get("comment")
    columns = [ColumnHit(path, doc, {}) for path, doc in _iceberg_fields(schema, "")]
    return _Described(TableName(row["namespace"], row["name"]), comment, {}, columns)


def _iceberg_fields(type_json: Any, before: str) -> Iterator[tuple[str, str | None]]:
    """Yields the path and comment of every field, with the names that Delta has for elements, keys and values."""
    if not isinstance(type_json, dict):
        return
    for item in type_json.get("fields", ()):
        yield f"{before}{item['name']}", item.get("doc")
        yield from _iceberg_fields(item["type"], f"{before}{item['name']}.")
    for name in ("element", "key", "value"):
        if name in type_json:
            yield from _iceberg_fields(type_json[name], f"{before}{name}.")


def _pattern(before: str, words: Sequence[str]) -> str | None:
    """A LIKE pattern for the longest ASCII run of the words; None if they have none, so all tables are checked."""
    runs = [run for word in words for run in _PLAIN_RUN.findall(word)]
    return f"%{before}%{max(runs, key=len).lower()}%" if runs else None


def _judge(described: _Described, wanted: Wanted) -> SearchHit | None:
    table = str(described.name)
    places = list(_places(table, described.comment, described.tags, described.columns))
    texts = [place.text.lower() for place in places]
    tagged = [place for place in places if place.tag is not None and wanted.is_tag(*place.tag)]
    if wanted.tag is not None and not tagged:
        return None
    if not all(any(word in text for text in texts) for word in wanted.words):
        return None
    matches = [
        place
        for place, text in zip(places, texts, strict=True)
        if place in tagged or any(word in text for word in wanted.words)
    ]
    within = {place.column for place in matches}
    return SearchHit(
        table,
        described.comment,
        described.tags,
        tuple(column for column in described.columns if column.column in within),
        tuple(place.label for place in matches),
    )


def _places(table: str, comment: str | None, tags: Mapping[str, str], columns: Sequence[ColumnHit]) -> Iterator[_Place]:
    yield _Place("name", table)
    if comment is not None:
        yield _Place("comment", comment)
    for name, value in tags.items():
        yield _Place(f"tag {name}", f"{name}={value}", None, (name, value))
    for item in columns:
        yield _Place(f"column {item.column}", item.column, item.column)
        if item.comment is not None:
            yield _Place(f"comment on {item.column}", item.comment, item.column)
        for name, value in item.tags.items():
            yield _Place(f"tag {name} on {item.column}", f"{name}={value}", item.column, (name, value))
