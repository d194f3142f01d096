"""Decides what a relation message means for a captured table: its new columns, or why it must stop."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa

from deltalakedb.cdc.captured_table import CapturedTable, SourceColumn
from deltalakedb.cdc.decode.messages import Relation
from deltalakedb.cdc.decode.values import convert, mask_text
from deltalakedb.cdc.evolve.lake_columns import ColumnChange, keeps_values, widening_steps
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.source.postgres import Connection
from deltalakedb.cdc.source.publication import problem_of_choice, read_columns
from deltalakedb.cdc.source.source_catalog import (
    STRING,
    Attribute,
    SourceRelation,
    TypeFacts,
    read_attributes,
    read_relations,
    read_type,
)
from deltalakedb.cdc.source_names import quote_source, resnapshot_command
from deltalakedb.exceptions import CaptureError, ValueNotHeld
from deltalakedb.log.schema.types import TypeChange

_OWN_TYPE: Final = TypeFacts("a type that is gone", "enum", -1, False, STRING)


class NotFollowedError(CaptureError):
    """The reason why a table stops: what happened. `stop_table` adds what to do."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A table's new state, and the changes that its tables in the lake need."""

    table: CapturedTable
    change: ColumnChange
    values: Mapping[str, pa.Scalar] = field(default_factory=dict)
    """The values of existing rows in added columns, if they are not null."""
    is_rekeyed: bool = False


@dataclass(frozen=True, slots=True)
class _Source:
    """The source's catalog as it is now; the message may be older."""

    relation: SourceRelation
    attributes: Mapping[int, Attribute]
    sent: Mapping[int, SourceColumn]


def decide(
    conn: Connection,
    settings: CaptureSettings,
    table: CapturedTable,
    relation: Relation,
    numbers: tuple[int, ...] | None = None,
) -> Decision:
    """Decide how to follow a table whose rows are sent as `relation` says; NotFollowedError if that is impossible.

    `numbers` are the numbers of its columns, if they are known.
    """
    source = _look(conn, settings, table, relation)
    if numbers is None:
        numbers = number_columns(relation, table, tuple(source.attributes.values()), source.sent.keys())
    if numbers is None:
        raise NotFollowedError(
            f"its columns are sent as {', '.join(column.name for column in relation.columns)}, and the source has "
            "changed them again since, so that nobody can tell which of them is which"
        )
    sent = _columns(conn, settings, table, relation, source, numbers)
    columns, left_out = _choose(settings, table, sent)
    change, notes = _compare(conn, table, columns)
    values: dict[str, pa.Scalar] = {}
    missing: dict[int, str] = {}
    for column in change.added:
        text, note = _text_of_old_rows(table, column, source, settings.mask_key)
        notes.append(note)
        if text is not None:
            missing[column.number] = text
            values[column.name] = _value(table, column, text)
    columns = tuple(replace(column, missing=missing.get(column.number)) for column in columns)
    key = _key(table, relation, source, sent)
    names = {column.number: column.name for column in table.columns}
    numbers_of_key = {column.number for column in columns if column.name in key}
    is_rekeyed = numbers_of_key != {number for number, name in names.items() if name in table.key}
    if is_rekeyed:
        notes.append(f"rows are named by {', '.join(key) or 'all their columns'}, no longer by {_key_text(table)}")
    # If the catalog is newer than the message, the filenode may come from a rewrite that is later in the stream.
    is_latest = source.relation.to_message(source.sent.values()).columns == relation.columns
    changed = replace(
        table,
        columns=columns,
        left_out=left_out,
        key=key,
        identity=relation.identity,
        notes=(*table.notes, *notes),
        filenode=source.relation.filenode if is_latest else table.filenode,
        newest=max(table.newest, *numbers),
    )
    problem = problem_of_choice(changed)
    if problem is not None:
        raise NotFollowedError(problem)
    return Decision(changed, change, values, is_rekeyed)


def _look(conn: Connection, settings: CaptureSettings, table: CapturedTable, relation: Relation) -> _Source:
    if relation.oid != table.oid:
        raise NotFollowedError(f"the table was dropped and made anew (its oid was {table.oid} and is {relation.oid})")
    found_relation = read_relations(conn, [table.oid], settings.publication).get(table.oid)
    if found_relation is None:
        raise NotFollowedError("its columns were changed, and the table has been dropped since")
    columns = read_columns(conn, [(table.oid, table.source)], settings)[table.oid]
    attributes = {attribute.number: attribute for attribute in read_attributes(conn, table.oid)}
    return _Source(found_relation, attributes, {column.number: column for column in columns})


def _columns(
    conn: Connection,
    settings: CaptureSettings,
    table: CapturedTable,
    relation: Relation,
    source: _Source,
    numbers: Sequence[int],
) -> tuple[SourceColumn, ...]:
    """The message's columns with their numbers and their types in the lake, before masks."""
    is_text = settings.choose(table.source).is_text
    text_numbers = {column.number for column in table.sent if is_text(column.name)}
    columns = []
    for number, sent in zip(numbers, relation.columns, strict=True):
        kind = source.sent.get(number)
        if kind is None or (kind.type_oid, kind.type_modifier) != (sent.type_oid, sent.type_modifier):
            facts = _facts(conn, sent.name, sent.type_oid, sent.type_modifier)
            kind = SourceColumn(sent.name, sent.type_oid, sent.type_modifier, facts.type, number, facts.text)
        if is_text(sent.name) or number in text_numbers:
            kind = replace(kind, type=STRING)
        columns.append(replace(kind, name=sent.name, number=number))
    return tuple(columns)


def _choose(
    settings: CaptureSettings, table: CapturedTable, sent: Sequence[SourceColumn]
) -> tuple[tuple[SourceColumn, ...], tuple[SourceColumn, ...]]:
    """The columns that are captured, and those that are not; NotFollowedError if a rename brings a column under a rule
    that differs from what the lake has of it."""
    choice = settings.choose(table.source)
    columns, left_out = choice.choose_columns(sent, table.columns, table.left_out)
    before = {column.number: column for column in table.columns}
    for column in columns:
        old = before.get(column.number)
        if old is None or old.name == column.name:
            continue
        if not choice.keeps(column.name):
            raise NotFollowedError(f"its column {old.name} is called {column.name} now, which the settings leave out")
        if column.mask is None and choice.mask_of(column.name) is not None:
            raise NotFollowedError(f"its column {old.name} is called {column.name} now, which the settings mask")
    return columns, left_out


def _facts(conn: Connection, name: str, oid: int, modifier: int) -> TypeFacts:
    facts = read_type(conn, oid, modifier)
    if facts is None:
        raise NotFollowedError(f"the type of its column {name} has been dropped since")
    return facts


def _compare(conn: Connection, table: CapturedTable, columns: Sequence[SourceColumn]) -> tuple[ColumnChange, list[str]]:
    """How the columns differ from the captured ones, and notes for readers of the lake."""
    before = {column.number: column for column in table.columns}
    after = {column.number for column in columns}
    added = tuple(column for column in columns if column.number not in before)
    dropped = tuple(column for column in table.columns if column.number not in after)
    renamed: dict[str, str] = {}
    widened: dict[str, tuple[SourceColumn, tuple[TypeChange, ...]]] = {}
    notes = [f"the source has dropped the column {column.name}" for column in dropped]
    for column in columns:
        old = before.get(column.number)
        if old is None:
            continue
        if old.name != column.name:
            renamed[old.name] = column.name
            notes.append(f"the column {column.name} was {old.name} before")
        if (old.type_oid, old.type_modifier) == (column.type_oid, column.type_modifier):
            continue
        steps = _steps(conn, old, column)
        if steps:
            widened[old.name] = (column, steps)
        feature = ", for readers that know Delta's type widening" if steps else ""
        notes.append(
            f"the column {column.name} was {_type_text(old)} and is {_type_text(column)}{feature}; if that ALTER "
            f"TABLE had a USING, {resnapshot_command(table.source)} brings what it computed"
        )
    return ColumnChange(added, dropped, renamed, widened), notes


def _steps(conn: Connection, old: SourceColumn, new: SourceColumn) -> tuple[TypeChange, ...]:
    """The type changes that Delta records for a column; none if the lake's type does not change."""
    steps = widening_steps(old.type, new.type)
    change = f"its column {new.name} was {_type_text(old)} and is {_type_text(new)}"
    if steps is None:
        raise NotFollowedError(f"{change}, which {old.type} cannot become in the lake without a new copy")
    if not steps:
        # A type that is gone was user-defined, most likely an enum that another one has replaced.
        before = read_type(conn, old.type_oid, old.type_modifier) or replace(_OWN_TYPE, type=old.type)
        if not keeps_values(before, _facts(conn, new.name, new.type_oid, new.type_modifier)):
            raise NotFollowedError(
                f"{change}: the values that are there may have changed, and the log does not tell them"
            )
    return steps


def _text_of_old_rows(
    table: CapturedTable, column: SourceColumn, source: _Source, mask_key: str | None
) -> tuple[str | None, str]:
    """The text that existing rows have in an added column, which the stream does not send, and a note about it."""
    attribute = source.attributes.get(column.number)
    event = f"the column {column.name} was added"
    if source.relation.has_column_list or column.number <= table.newest:
        raise NotFollowedError(
            f"the publication sends the column {column.name} from now on, and has not sent what older rows have in it"
        )
    if attribute is None or attribute.is_dropped:
        return None, f"{event}, and dropped again; rows from before have null in it"
    if attribute.has_missing and not attribute.is_rewritten:
        if attribute.missing is None:
            raise NotFollowedError(f"its column {column.name} was added with a default that cannot be read")
        missing = mask_text(attribute.missing, column.mask, mask_key)
        return missing, f"{event}; rows from before have its default, {missing}"
    if attribute.has_missing or (attribute.computes and _is_rewritten(table, attribute, source)):
        raise NotFollowedError(
            f"its column {column.name} was added with a value that is computed for each row, and the log does not tell "
            "what rows from before have got"
        )
    return None, f"{event}; rows from before have null in it"


def _is_rewritten(table: CapturedTable, attribute: Attribute, source: _Source) -> bool:
    """Whether the rows may differ from those that the stream has sent."""
    if source.relation.is_partitioned:
        return bool(attribute.is_rewritten)
    return table.filenode is None or source.relation.filenode != table.filenode


def _value(table: CapturedTable, column: SourceColumn, text: str) -> pa.Scalar:
    try:
        return convert(pa.array([text]), column.type, where=f"{table.source}.{column.name}")[0]
    except ValueNotHeld as error:
        raise NotFollowedError(f"its column {column.name} was added: {error}") from error


def _key(table: CapturedTable, relation: Relation, source: _Source, columns: Sequence[SourceColumn]) -> tuple[str, ...]:
    """The columns of the key, in the table's order if they are the same ones."""
    names = {column.number: column.name for column in columns}
    numbers = {column.name: column.number for column in table.columns}
    before = [numbers[name] for name in table.key]
    if relation.identity == "f":
        primary = source.relation.primary_key
        # A key that was added later may not hold for older rows; by whole rows every change can be followed.
        same = bool(before) and set(before) == set(primary) and set(before) <= names.keys()
        return tuple(names[number] for number in before) if same else ()
    flagged = [column.number for column, sent in zip(columns, relation.columns, strict=True) if sent.is_key]
    if not flagged:
        raise NotFollowedError(
            "nothing names its rows any more: give it a primary key, or "
            f"alter table {quote_source(table.source)} replica identity full"
        )
    return tuple(names[number] for number in (before if set(before) == set(flagged) else flagged))


def _key_text(table: CapturedTable) -> str:
    return ", ".join(table.key) or "all their columns"


def _type_text(column: SourceColumn) -> str:
    return column.type_name or str(column.type)


_NOTHING: Final = 0
_NAME: Final = 1
_NAME_AND_TYPE: Final = 3
"""By how many parts of its form a column is matched."""
_ENOUGH = 2
"""With this many solutions a message is ambiguous; no more are searched."""


def number_columns(
    relation: Relation, table: CapturedTable, attributes: Sequence[Attribute], sent: Collection[int]
) -> tuple[int, ...] | None:
    """The numbers of a relation's columns, or None if there is no unique answer.

    The message may be older than the catalog. What is certain: columns are sent in the order of their numbers, the
    number of a dropped column is not used again, a new column has a higher number than all before, and a column that is
    sent now (`sent`) was sent then, if it existed. If that is ambiguous, names decide, which are rarely used twice: a
    name in the captured table or in the catalog is that column's, or that of one that was added and dropped since; a
    name in neither may be any column's, before a rename. If two columns had one name, one after the other, the type
    decides.
    """
    search = _Search(
        [_Form(column.name, column.type_oid, column.type_modifier) for column in relation.columns],
        {column.number: _Form(column.name, column.type_oid, column.type_modifier) for column in table.sent},
        {
            attribute.number: _Form(attribute.name, attribute.type_oid, attribute.type_modifier)
            for attribute in attributes
            if not attribute.is_dropped
        },
        frozenset(attribute.number for attribute in attributes if attribute.is_dropped),
        frozenset(sent),
        max([table.newest, *(column.number for column in table.sent)]),
    )
    solutions: list[tuple[int, ...]] = []
    for known_by in _NOTHING, _NAME, _NAME_AND_TYPE:
        solutions = search.solve(known_by)
        if len(solutions) <= 1:
            break
    return solutions[0] if len(solutions) == 1 else None


class _Form(NamedTuple):
    """A column as a message, the capture or the catalog describes it."""

    name: str
    type_oid: int
    type_modifier: int


@dataclass(frozen=True, slots=True)
class _Search:
    columns: Sequence[_Form]
    captured: Mapping[int, _Form]
    live: Mapping[int, _Form]
    dropped: frozenset[int]
    sent: frozenset[int]
    newest: int
    """Columns with higher numbers were added after the table was captured."""

    def solve(self, parts: int) -> list[tuple[int, ...]]:
        """Up to two ways to number the columns, matched by this many parts of their forms, or by their names."""
        owners = (*self.captured.values(), *self.live.values())
        known_forms = {form[:count] for form in owners for count in {parts, min(parts, _NAME)} if count}
        forms = [
            next((form[:count] for count in (parts, _NAME) if form[:count] in known_forms), None)
            for form in self.columns
        ]
        # From the last number to the first: `ways[i]` are the ways to number the columns from i on so far.
        ways: list[list[_Way]] = [*([] for _ in forms), [None]]
        for number in sorted({*self.captured, *self.live, *self.dropped}, reverse=True):
            if number not in self.captured and number not in self.live and number <= self.newest:
                continue  # it was dropped before
            must, ended = number in self.sent, number in self.sent and number in self.captured
            for place, form in enumerate(forms):
                extended = [(number, way) for way in ways[place + 1]] if self._may_be(number, form) else []
                ways[place] = [*extended, *([] if must else ways[place])][:_ENOUGH]
            if ended:
                ways[-1] = []
        return [tuple(_numbers(way)) for way in ways[0]]

    def _may_be(self, number: int, form: tuple[object, ...] | None) -> bool:
        """Whether a column may have had this form, a name or a name and a type; None is a form that nothing has."""
        if form is None or (number in self.dropped and number > self.newest):
            return True
        forms = (self.captured.get(number), self.live.get(number))
        return any(candidate is not None and candidate[: len(form)] == form for candidate in forms)


_Way: TypeAlias = "tuple[int, _Way] | None"
"""A number and those after it."""


def _numbers(way: _Way) -> Iterator[int]:
    while way is not None:
        number, way = way
        yield number
