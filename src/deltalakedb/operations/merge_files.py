"""Finds the target files that a merge must read, from its condition and the keys of its source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING, Any, Final

from deltalakedb.log.predicates import dnf
from deltalakedb.log.predicates.atoms import ALWAYS, FALSE, Dnf, Predicate
from deltalakedb.log.predicates.predicate import parse_predicate
from deltalakedb.log.schema.types import StructType
from deltalakedb.operations.expressions import Expression, quoted, sql_type
from deltalakedb.operations.merge_names import Key, Names
from deltalakedb.operations.merge_request import MergeRequest
from deltalakedb.operations.target import Target

if TYPE_CHECKING:
    from deltalakedb.data.engine import Engine

_FEW_KEYS: Final = 1000
_MAX_RANGES: Final = 16
"""Many keys are put into at most this many ranges: most keys are often close together, with a few far away."""
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
"""Types of source keys that sort as the column's type does; integers and decimals are handled separately."""


_MAX_NOTED = 1000
"""How many keys a commit records at most."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The rows of the target that a merge can touch or match."""

    predicate: Predicate
    on_target: str | None
    """The condition on the target alone, as history shows it."""
    scanned: Predicate
    """Selects the files that count as scanned: a streamed source's keys exclude none of them, as in `deltalake`."""

    @property
    def is_everything(self) -> bool:
        return self.predicate.disjuncts == ALWAYS.disjuncts


def find_reach(target: Target, request: MergeRequest, names: Names, engine: Engine) -> Reach:
    """Return the predicate of the rows that the merge needs: they may match, or a clause for unmatched rows applies."""
    parts: list[Dnf] = []
    fixed: list[Dnf] = []  # those that do not depend on the source
    texts: list[str] = []
    conditions: list[str | Key] = []
    for conjunct in names.conjuncts(request.predicate):
        target_sql = names.on_target_alone(conjunct)
        if target_sql is not None:
            conditions.append(Expression.parse(target_sql, target.schema).text)
            parts.append(_parse(target_sql, target).disjuncts)
            fixed.append(parts[-1])
            texts.append(target_sql)
            continue
        key = names.key(conjunct)
        if key is not None:
            conditions.append(key)
        elif not (read := names.read(conjunct)).columns and read.is_stable:
            conditions.append(read.text)
            fixed.append(_parse(read.text, target).disjuncts)
        key_predicate = None if key is None else _of_key(key, target, names, engine)
        if key_predicate is not None:
            parts.append(key_predicate.disjuncts)
            texts.append(key_predicate.text)
    matching = Predicate(_shown(texts, " and "), dnf.all_of(parts))
    others = list(_without_match(request, names, target))
    predicate = Predicate(_shown([matching.text, *(other.text for other in others)], " or "), _any([matching, *others]))
    scanned = ALWAYS if request.of_kind("not_matched_by_source") else _all(fixed if request.streamed else parts + fixed)
    return Reach(predicate, _noted(conditions, request, names, target, engine), scanned)


def _noted(
    conditions: list[str | Key], request: MergeRequest, names: Names, target: Target, engine: Engine
) -> str | None:
    """Return the predicate that the commit records. If the source does not count as a stream, it includes the source's
    keys: every key if they select partitions, else their range."""
    texts_only = [condition for condition in conditions if isinstance(condition, str)]
    keys = [condition for condition in conditions if isinstance(condition, Key)]
    source = f"from source as {names.s}"
    if not request.streamed and keys:
        columns = [_NotedColumn.of(key, target.schema) for key in keys]
        if any(key.column in target.metadata.partition_columns for key in keys):
            values = ", ".join(f"{key.source.sql} as v{index}" for index, key in enumerate(keys))
            texts = ", ".join(column.text_of(f"v{index}") for index, column in enumerate(columns))
            order = ", ".join(f"v{index}" for index in range(len(keys)))
            rows = engine.execute(
                f"select {texts} from (select distinct {values} {source}) order by {order} limit {_MAX_NOTED + 1}"
            )
            alternatives = [[column.equal_to(text) for column, text in zip(columns, row, strict=True)] for row in rows]
        else:
            ends = [
                column.text_of(f"{end}({key.source.sql})")
                for key, column in zip(keys, columns, strict=True)
                for end in ("min", "max")
            ]
            row = engine.execute(f"select {', '.join(ends)} {source}")[0]
            alternatives = [[column.between(*row[2 * index : 2 * index + 2]) for index, column in enumerate(columns)]]
        if len(alternatives) <= _MAX_NOTED:
            return " OR ".join(_all_of([*_in_order(conditions, parts)]) for parts in alternatives) or None
    return _all_of(texts_only) or None


def _in_order(conditions: list[str | Key], keys: list[str]) -> Iterator[str]:
    """Yield the parts of the condition in their order, with values for the keys."""
    values = iter(keys)
    for condition in conditions:
        yield condition if isinstance(condition, str) else next(values)


def _all_of(conditions: list[str]) -> str:
    return " AND ".join(
        f"({condition})" if len(conditions) > 1 and " OR " in condition else condition for condition in conditions
    )


@dataclass(frozen=True, slots=True)
class _NotedColumn:
    """A key column in the recorded predicate; values are handled as text, which is lossless for every type."""

    name: str
    kind: str
    schema: StructType

    @classmethod
    def of(cls, key: Key, schema: StructType) -> _NotedColumn:
        field = schema.field(key.column)
        return cls(key.column, "" if field is None else str(field.type), schema)

    def text_of(self, sql: str) -> str:
        """Return SQL for the text of a value."""
        return f"lower(hex({sql}))" if self.kind == "binary" else f"cast({sql} as varchar)"

    def equal_to(self, text: str | None) -> str:
        """Return a condition that the column equals this value; a comparison with null is null."""
        if self.kind == "boolean" and text is not None:
            return self._spell("" if text == "true" else "not ", "")
        return self._compare("=", text)

    def between(self, low: str | None, high: str | None) -> str:
        """Return a condition that the column is in this range."""
        if low == high:
            return self.equal_to(low)
        return f"{self._compare('>=', low)} AND {self._compare('<=', high)}"

    def _compare(self, sign: str, text: str | None) -> str:
        if text is None:
            return "NULL"
        if self.kind == "binary":
            return f"{self._spell('', '')} {sign} decode('{text}', 'hex')"
        if self.kind == "boolean":
            return f"{self._spell('', '')} {sign} {text}"
        literal = "'" + text.replace("'", "''") + "'"
        return self._spell("", f" {sign} {literal}")

    def _spell(self, before: str, after: str) -> str:
        return Expression.parse(f"{before}{quoted(self.name)}{after}", self.schema).text


def _all(parts: list[Dnf]) -> Predicate:
    return Predicate("", dnf.all_of(parts))


def _any(predicates: Iterable[Predicate]) -> Dnf:
    return dnf.any_of([predicate.disjuncts for predicate in predicates])


def _shown(texts: list[str], between: str) -> str:
    joined = between.join(f"({text})" if len(texts) > 1 else text for text in texts) or "true"
    return joined if len(joined) <= _MAX_SHOWN else f"{joined[:_MAX_SHOWN]}..."


def _without_match(request: MergeRequest, names: Names, target: Target) -> Iterator[Predicate]:
    """Yield predicates of the rows that clauses for rows without a source match apply to."""
    for _, clause in request.of_kind("not_matched_by_source"):
        target_sql = None if clause.predicate is None else names.on_target_alone(clause.predicate)
        yield ALWAYS if target_sql is None else _parse(target_sql, target)


def _parse(source: Any, target: Target) -> Predicate:
    return parse_predicate(source, target.schema, target.metadata.partition_columns)


def _of_key(key: Key, target: Target, names: Names, engine: Engine) -> Predicate | None:
    """Return the source's keys as a predicate on the target: the values if they are few, else ranges of them."""
    field = target.schema.field(key.column)
    source = f"from source as {names.s}"
    key_type = names.column_type(key.source)
    sql_key_type = sql_type(key_type) if key_type is not None else engine.types(f"select {key.source.sql} {source}")[0]
    if field is None or not _are_comparable(str(field.type), sql_key_type):
        return None
    if key.null_safe and engine.execute(f"select 1 {source} where {key.source.sql} is null limit 1"):
        return None
    from_non_null = f"{source} where {key.source.sql} is not null"
    try:
        distinct = engine.table(f"select distinct {key.source.sql} as v {from_non_null} limit {_FEW_KEYS + 1}")
        values = distinct.column("v").to_pylist()
        if len(values) > _FEW_KEYS:
            values = _ends(engine, key, from_non_null, most=_MAX_RANGES if sql_key_type in _WHOLE_NUMBERS else 1)
    except (OverflowError, ValueError):  # a date outside Python's range
        return None
    if any(map(_is_nan, values)):
        return None
    if distinct.num_rows > _FEW_KEYS:
        ranges = list(zip(values[::2], values[1::2], strict=True))
        parsed = [_parse([(key.column, ">=", low), (key.column, "<=", high)], target) for low, high in ranges]
        return Predicate(_shown([range_predicate.text for range_predicate in parsed], " or "), _any(parsed))
    disjuncts = _parse([(key.column, "in", values)], target).disjuncts if values else FALSE
    return Predicate(f"{key.column} in {_brief(values)}", disjuncts)


def _ends(engine: Engine, key: Key, is_there: str, most: int) -> list[Any]:
    """Return the ends of ranges that contain all source keys, split at the widest gaps between keys."""
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
    first_values = ", ".join(map(str, values[:5]))
    return f"({first_values}{', ...' if len(values) > 5 else ''})"
