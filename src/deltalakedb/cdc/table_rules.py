"""The rules of the settings: which tables and columns are captured, what is masked, and what each table becomes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Final, Literal, get_args

from deltalakedb.cdc.captured_table import Layers, Mask, SourceColumn, TableOptions
from deltalakedb.cdc.source_names import source_parts
from deltalakedb.exceptions import ConfigError
from deltalakedb.log.schema.types import PrimitiveType
from deltalakedb.store.names import TableName, join_namespace, quote_part, split_name

Composites = Literal["text", "json", "struct"]
"""What a column of a composite type becomes: the text that psql prints, a JSON text, or a struct."""

COMPOSITES: Final = get_args(Composites)
LAYERS: Final = get_args(Layers)
CHANGES_SUFFIX: Final = "_changes"
_STRING: Final = PrimitiveType("string")
_ALL_TABLES: Final = ("*.*",)
PLACEHOLDER: Final = re.compile(r"\{(\w*)\}")
_WILDCARD: Final = re.compile(r"\*|\?|\[!?[^\]]+\]")


@dataclass(frozen=True, slots=True)
class TableRule:
    """The options of the tables that match some patterns; None: the rule does not set it."""

    tables: tuple[str, ...] = _ALL_TABLES
    namespace: str | None = None
    name: str | None = None
    changes_name: str | None = None
    include_columns: tuple[str, ...] | None = None
    exclude_columns: tuple[str, ...] | None = None
    mask: tuple[tuple[str, Mask], ...] | None = None
    text_columns: tuple[str, ...] | None = None
    composites: Composites | None = None
    layers: Layers | None = None
    partition_by: tuple[str, ...] | None = None
    cluster_by: tuple[str, ...] | None = None
    buckets: int | None = None
    deletion_vectors: bool | None = None
    change_data_feed: bool | None = None
    column_mapping: bool | None = None

    def match(self, source: str) -> tuple[str, ...] | None:
        """What the groups of the first matching pattern matched; None if none matches."""
        return next((groups for text in self.tables if (groups := match_table(text, source)) is not None), None)

    def column_patterns(self) -> Iterator[tuple[str, str]]:
        """All column patterns, each with its key."""
        for key in ("include_columns", "exclude_columns", "text_columns", "partition_by", "cluster_by"):
            yield from ((key, pattern) for pattern in getattr(self, key) or ())
        yield from (("mask", pattern) for pattern, _ in self.mask or ())

    def to_value(self) -> dict[str, Any]:
        """The form in the control table, which `parse_rules` reads."""
        values = {
            value_of.name: getattr(self, value_of.name)
            for value_of in fields(self)
            if getattr(self, value_of.name) is not None
        }
        value = {key: list(value_of) if isinstance(value_of, tuple) else value_of for key, value_of in values.items()}
        if self.mask is not None:
            value["mask"] = {pattern: _mask_value(mask) for pattern, mask in self.mask}
        return value


@dataclass(frozen=True, slots=True)
class TableChoice:
    """All rules together, applied to one source table."""

    source: str
    current: str
    changes: str
    options: TableOptions
    composites: Composites
    rules: tuple[TableRule, ...] = ()
    """Those that match it, in their order."""
    key_id: str | None = None
    text_columns: frozenset[str] = frozenset()
    """Columns that are captured as text, by name; rules may add others by pattern."""

    def is_text(self, column: str) -> bool:
        """Whether a column is captured as text."""
        patterns = (pattern for rule in self.rules for pattern in rule.text_columns or ())
        return column in self.text_columns or any(matches(pattern, column) for pattern in patterns)

    def keeps(self, column: str) -> bool:
        """Whether a column is captured: no rule excludes it, and the last list of included columns has it."""
        if self.excludes(column):
            return False
        listed = [rule.include_columns for rule in self.rules if rule.include_columns is not None]
        return not listed or any(matches(pattern, column) for pattern in listed[-1])

    def excludes(self, column: str) -> bool:
        """Whether a rule excludes a column."""
        return any(matches(pattern, column) for rule in self.rules for pattern in rule.exclude_columns or ())

    def mask_of(self, column: str) -> Mask | None:
        """The mask of a column: the last one that matches."""
        masks = [mask for rule in self.rules for pattern, mask in rule.mask or () if matches(pattern, column)]
        if not masks:
            return None
        return replace(masks[-1], key_id=self.key_id) if masks[-1].kind == "hash" else masks[-1]

    def says(self, option: str) -> bool:
        """Whether a rule sets an option; otherwise the capture's own setting applies."""
        return any(getattr(rule, option) is not None for rule in self.rules)

    @property
    def maps_columns(self) -> bool:
        """Whether a rule asks for tables that can follow renamed columns."""
        return self.options.column_mapping and self.says("column_mapping")

    @property
    def unmaps_columns(self) -> bool:
        """Whether a rule asks for tables that cannot follow renamed columns."""
        return not self.options.column_mapping and self.says("column_mapping")

    def choose_columns(
        self, sent: Iterable[SourceColumn], earlier: Iterable[SourceColumn] = (), left_out: Iterable[SourceColumn] = ()
    ) -> tuple[tuple[SourceColumn, ...], tuple[SourceColumn, ...]]:
        """The columns that are captured, with their masks, and those that are not.

        A decision about a column (`earlier`, `left_out`) stays when the source renames it, so a rename reveals nothing.
        """
        before = {column.number: column for column in earlier}
        hidden = {column.number: column for column in left_out}
        captured, others = [], []
        for column in sent:
            old = before.get(column.number)
            if column.number in hidden:
                others.append(_keep_ruled_name(column, hidden[column.number]))
            elif old is not None:
                ruled = column if old.mask is None else _keep_ruled_name(column, old)
                captured.append(mask_column(ruled, old.mask))
            elif self.keeps(column.name):
                captured.append(mask_column(column, self.mask_of(column.name)))
            else:
                others.append(column)
        return tuple(captured), tuple(others)

    def choose_again(
        self, sent: Iterable[SourceColumn], hidden: Mapping[int | str, SourceColumn]
    ) -> tuple[tuple[SourceColumn, ...], tuple[SourceColumn, ...]]:
        """The same for a new copy, for which the rules decide again.

        A column that was masked or left out (`hidden`, by number or by name) is also subject to the rules for its
        former name: a new copy of a table in which it was renamed must not show its values.
        """
        captured, others = [], []
        for column in sent:
            old = hidden.get(column.number) or hidden.get(column.name)
            ruled = column if old is None else _keep_ruled_name(column, old)
            before = ruled.ruled_as
            if not self.keeps(column.name) or (before is not None and self.excludes(before)):
                others.append(ruled)
                continue
            mask = self.mask_of(column.name)
            if mask is None and before is not None:
                mask = self.mask_of(before)
            captured.append(mask_column(ruled if mask is not None else column, mask))
        return tuple(captured), tuple(others)


def _keep_ruled_name(column: SourceColumn, old: SourceColumn) -> SourceColumn:
    """The column with the name under which it was masked or left out, if it has another one now."""
    ruled_as = old.ruled_as or old.name
    return replace(column, ruled_as=None if ruled_as == column.name else ruled_as)


def mask_column(column: SourceColumn, mask: Mask | None) -> SourceColumn:
    """The column under a mask: a hash is a text, whatever the column's type."""
    if mask is None:
        return column
    return replace(column, mask=mask, type=_STRING if mask.kind == "hash" else column.type, shape=None)


def _mask_value(mask: Mask) -> Any:
    return {"constant": mask.text} if mask.kind == "constant" else mask.kind


# -- patterns


def match_table(pattern: str, source: str) -> tuple[str, ...] | None:
    """What the groups of a pattern such as `sales.order_*` match in a source table; None if it does not match."""
    groups: list[str] = []
    for part, text in zip(compile_table_pattern(pattern), source_parts(source), strict=True):
        match = part.fullmatch(text)
        if match is None:
            return None
        groups += match.groups()
    return tuple(groups)


def matches(pattern: str, name: str) -> bool:
    """Whether the name of a column matches a pattern."""
    return compile_pattern(pattern).fullmatch(name) is not None


def has_wildcard(pattern: str) -> bool:
    return count_wildcards(pattern) > 0


def count_wildcards(pattern: str) -> int:
    return len(_WILDCARD.findall(pattern))


@cache
def compile_table_pattern(pattern: str) -> tuple[re.Pattern[str], ...]:
    """The regular expressions of a pattern's schema and table; ConfigError if it is not such a pattern."""
    parts = split_name(pattern, checks=False)
    if len(parts) > 2 or not all(parts):
        raise ConfigError(
            f"{pattern!r} is no pattern of tables: write schema.table, with * for any text, as in sales.order_*; a "
            "name that has a dot in it is in backticks"
        )
    return tuple(map(compile_pattern, parts if len(parts) == 2 else ["public", *parts]))


@cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """The regular expression of a pattern: * is any text, ? one character, [ab] one of several."""
    regex, end = "", 0
    for wildcard in _WILDCARD.finditer(pattern):
        regex += re.escape(pattern[end : wildcard.start()]) + _wildcard(wildcard[0])
        end = wildcard.end()
    return re.compile(regex + re.escape(pattern[end:]), re.DOTALL)


def _wildcard(text: str) -> str:
    if text in ("*", "?"):
        return "(.*)" if text == "*" else "(.)"
    inside = text[1:-1].replace("\\", "\\\\").replace("[", "\\[")
    inside = f"^{inside[1:]}" if inside.startswith("!") else inside.replace("^", "\\^", 1)
    return f"([{inside}])"


# -- applying the rules to a table


def choose_table(
    source: str,
    rules: Sequence[TableRule],
    *,
    namespace: str | None,
    options: TableOptions,
    composites: Composites,
    key_id: str | None,
    text_columns: frozenset[str] = frozenset(),
) -> TableChoice:
    """Apply the rules to a source table; if several rules set an option, the last one wins. The rest are defaults."""
    matching = [(rule, groups) for rule in rules if (groups := rule.match(source)) is not None]
    schema, table = source_parts(source)
    where, name, changes_name = quote_part(schema) if namespace is None else namespace, table, None
    chosen: dict[str, Any] = {}
    for rule, groups in matching:
        texts = {"schema": schema, "table": table, **{str(place): text for place, text in enumerate(groups, 1)}}
        if rule.namespace is not None:
            where = join_namespace([_fill(part, texts) for part in split_name(rule.namespace, checks=False)])
        name = _fill(rule.name, texts) if rule.name is not None else name
        changes_name = _fill(rule.changes_name, texts) if rule.changes_name is not None else changes_name
        chosen |= {
            option.name: value for option in fields(options) if (value := getattr(rule, option.name)) is not None
        }
        if rule.partition_by:  # a table has one of the two
            chosen["buckets"] = 0
        elif rule.buckets:
            chosen["partition_by"] = ()
        composites = rule.composites or composites
    return TableChoice(
        source,
        str(TableName(where, name)),
        str(TableName(where, name + CHANGES_SUFFIX if changes_name is None else changes_name)),
        replace(options, **chosen),
        composites,
        tuple(rule for rule, _ in matching),
        key_id,
        text_columns,
    )


def _fill(template: str, texts: Mapping[str, str]) -> str:
    return PLACEHOLDER.sub(lambda placeholder: texts[placeholder[1]], template)


def find_unmatched(
    rules: Sequence[TableRule], patterns: Sequence[str], tables: Mapping[str, Iterable[str]]
) -> Iterator[tuple[str, bool]]:
    """What matches nothing in `tables` (columns by source table), and whether that must be a mistake: a name without a
    wildcard is one, while a pattern may be for future tables and columns."""
    for pattern in patterns:
        if not any(match_table(pattern, source) is not None for source in tables):
            yield f"no published table matches {pattern} of include", not has_wildcard(pattern)
    for number, rule in enumerate(rules, 1):
        columns = {name for source, names in tables.items() if rule.match(source) is not None for name in names}
        if not columns:
            yield f"rule {number} matches no table ({', '.join(rule.tables)})", not any(map(has_wildcard, rule.tables))
            continue
        for key, pattern in rule.column_patterns():
            if not any(matches(pattern, name) for name in columns):
                yield f"rule {number}: no column matches {pattern} of {key}", not has_wildcard(pattern)
