"""Owns which files of the target a merge has to look at, as its condition and the keys of its source tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING, Any, Final

from deltalakedb.log import dnf
from deltalakedb.log.atoms import ALWAYS, FALSE, Dnf, Predicate
from deltalakedb.log.predicate import parse_predicate
from deltalakedb.operations.expressions import sql_type
from deltalakedb.operations.merge_names import Key, Names
from deltalakedb.operations.merge_request import MergeRequest
from deltalakedb.operations.target import Target

if TYPE_CHECKING:
    from deltalakedb.data.engine import Engine

_FEW_KEYS: Final = 1000
_MAX_RANGES: Final = 16
"""Into so many ranges many keys are put: most are often close together, and few lie far away."""
_MAX_SHOWN: Final = 200
_WHOLE_NUMBERS: Final = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT"})
_COMPARABLE: Final = {
    "string": frozenset({"VARCHAR"}),
    "date": frozenset({"DATE"}),
    "timestamp": frozenset({"TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ"}),
    "timestamp_ntz": frozenset({"TIMESTAMP"}),
    "float": frozenset({"FLOAT", "DOUBLE"}),
    "double": frozenset({"FLOAT", "DOUBLE"}),
}
"""Types of the source's keys whose values stand in order as the column's do; whole numbers and decimals beside."""


_MAX_NOTED = 1000
"""Keys that a commit names one by one."""
_UNWRITTEN = "\0"
"""Stands for a value that has no plain literal."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The rows of the target that a merge can touch or match."""

    predicate: Predicate
    on_target: str | None
    """What the condition alone asks of the target, as history shows it."""

    @property
    def is_everything(self) -> bool:
        return self.predicate.disjuncts == ALWAYS.disjuncts


def find_reach(target: Target, request: MergeRequest, names: Names, engine: Engine) -> Reach:
    """What must be true of a row for the merge to need it: it may match, or a clause takes rows without a match."""
    parts: list[Dnf] = []
    texts: list[str] = []
    conditions: list[str | Key] = []
    for conjunct in names.conjuncts(request.predicate):
        plain = names.on_target_alone(conjunct)
        if plain is not None:
            conditions.append(plain)
            parts.append(_parse(plain, target).disjuncts)
            texts.append(plain)
            continue
        key = names.key(conjunct)
        conditions += [] if key is None else [key]
        found = None if key is None else _of_key(key, target, names, engine)
        if found is not None:
            parts.append(found.disjuncts)
            texts.append(found.text)
    matching = Predicate(_shown(texts, " and "), dnf.all_of(parts))
    others = list(_without_match(request, names, target))
    predicate = Predicate(_shown([matching.text, *(one.text for one in others)], " or "), _any([matching, *others]))
    return Reach(predicate, _noted(conditions, request, names, target, engine))


def _noted(
    conditions: list[str | Key], request: MergeRequest, names: Names, target: Target, engine: Engine
) -> str | None:
    """What the commit says that the merge looked for. Of a source that does not count as a stream also its keys: each
    of them if they choose partitions, else their range."""
    alone = [one for one in conditions if isinstance(one, str)]
    keys = [one for one in conditions if isinstance(one, Key)]
    source = f"from source as {names.s}"
    if not request.streamed and keys:
        if any(key.column in target.metadata.partition_columns for key in keys):
            chosen = ", ".join(key.source.sql for key in keys)
            rows = engine.execute(f"select distinct {chosen} {source} order by all limit {_MAX_NOTED + 1}")
            found = [
                [f"{key.column} = {_literal(value)}" for key, value in zip(keys, row, strict=True)] for row in rows
            ]
        else:
            ends = ", ".join(f"min({key.source.sql}), max({key.source.sql})" for key in keys)
            row = engine.execute(f"select {ends} {source}")[0]
            bounds = [_literal(value) for value in row]
            found = [
                [f"{key.column} >= {low} AND {key.column} <= {high}"
                 for key, low, high in zip(keys, bounds[::2], bounds[1::2], strict=True)]
            ]  # fmt: skip
        if len(found) <= _MAX_NOTED and not any(_UNWRITTEN in part for parts in found for part in parts):
            return " OR ".join(_all_of([*_in_order(conditions, parts)]) for parts in found) or None
    return _all_of(alone) or None


def _in_order(conditions: list[str | Key], keys: list[str]) -> Iterator[str]:
    """The parts of the condition as they were written, keys with their values."""
    values = iter(keys)
    for one in conditions:
        yield one if isinstance(one, str) else next(values)


def _all_of(conditions: list[str]) -> str:
    return " AND ".join(f"({one})" if len(conditions) > 1 and " OR " in one else one for one in conditions)


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else "NULL" if value is None else _UNWRITTEN


def _any(predicates: Iterable[Predicate]) -> Dnf:
    return dnf.any_of([one.disjuncts for one in predicates])


def _shown(texts: list[str], between: str) -> str:
    shown = between.join(f"({text})" if len(texts) > 1 else text for text in texts) or "true"
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."


def _without_match(request: MergeRequest, names: Names, target: Target) -> Iterator[Predicate]:
    """Rows that no row of the source matches, as far as a clause takes them."""
    for _, clause in request.of_kind("not_matched_by_source"):
        plain = None if clause.predicate is None else names.on_target_alone(clause.predicate)
        yield ALWAYS if plain is None else _parse(plain, target)


def _parse(source: Any, target: Target) -> Predicate:
    return parse_predicate(source, target.schema, target.metadata.partition_columns)


def _of_key(key: Key, target: Target, names: Names, engine: Engine) -> Predicate | None:
    """The source's keys as a condition on the target: the values when they are few, else ranges that hold them."""
    field = target.schema.field(key.column)
    source = f"from source as {names.s}"
    known = names.column_type(key.source)
    found = sql_type(known) if known is not None else engine.types(f"select {key.source.sql} {source}")[0]
    if field is None or not _are_comparable(str(field.type), found):
        return None
    if key.null_safe and engine.execute(f"select 1 {source} where {key.source.sql} is null limit 1"):
        return None
    is_there = f"{source} where {key.source.sql} is not null"
    try:
        some = engine.table(f"select distinct {key.source.sql} as v {is_there} limit {_FEW_KEYS + 1}")
        values = some.column("v").to_pylist()
        if len(values) > _FEW_KEYS:
            values = _ends(engine, key, is_there, most=_MAX_RANGES if found in _WHOLE_NUMBERS else 1)
    except (OverflowError, ValueError):  # a date that Python does not have
        return None
    if any(map(_is_nan, values)):
        return None
    if some.num_rows > _FEW_KEYS:
        ranges = list(zip(values[::2], values[1::2], strict=True))
        parsed = [_parse([(key.column, ">=", low), (key.column, "<=", high)], target) for low, high in ranges]
        return Predicate(_shown([one.text for one in parsed], " or "), _any(parsed))
    disjuncts = _parse([(key.column, "in", values)], target).disjuncts if values else FALSE
    return Predicate(f"{key.column} in {_brief(values)}", disjuncts)


def _ends(engine: Engine, key: Key, is_there: str, most: int) -> list[Any]:
    """The ends of ranges that hold all keys of the source: cut where the gaps between keys are the widest."""
    ends = engine.table(f"select min({key.source.sql}) as lo, max({key.source.sql}) as hi {is_there}").to_pylist()[0]
    if most == 1:
        return [ends["lo"], ends["hi"]]
    cuts = engine.execute(
        f"select p, v from (select v, lag(v) over (order by v) as p from (select distinct {key.source.sql} as v "
        f"{is_there})) where v::double - p::double > 1 order by v::double - p::double desc limit {most - 1}"
    )
    return [ends["lo"], *(end for cut in sorted(cuts) for end in cut), ends["hi"]]


def _are_comparable(column: str, found: str) -> bool:
    if column in ("byte", "short", "integer", "long") or column.startswith("decimal("):
        return found in _WHOLE_NUMBERS or found.startswith("DECIMAL(")
    return found in _COMPARABLE.get(column, ())


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and isnan(value)


def _brief(values: list[Any]) -> str:
    shown = ", ".join(map(str, values[:5]))
    return f"({shown}{', ...' if len(values) > 5 else ''})"
