"""Parses the rules of `[[cdc.rules]]`, and says which one is wrong, and how."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from deltalakedb.cdc.captured_table import Mask
from deltalakedb.cdc.table_rules import (
    COMPOSITES,
    LAYERS,
    PLACEHOLDER,
    TableRule,
    compile_pattern,
    compile_table_pattern,
    count_wildcards,
)
from deltalakedb.exceptions import ConfigError, TableNameError
from deltalakedb.store.names import split_name


def parse_patterns(patterns: Iterable[str]) -> None:
    """ConfigError if a table pattern is invalid."""
    for pattern in patterns:
        try:
            compile_table_pattern(pattern)
        except (TableNameError, re.error) as error:
            raise ConfigError(f"{pattern!r} is no pattern of tables: {error}") from None


def parse_rules(value: Any) -> tuple[TableRule, ...]:
    """Parse the rules of `[[cdc.rules]]`; ConfigError says which one is wrong, and how."""
    if isinstance(value, tuple) and all(isinstance(item, TableRule) for item in value):
        return value
    if (
        not isinstance(value, Sequence)
        or isinstance(value, str)
        or not all(isinstance(item, Mapping) for item in value)
    ):
        raise ConfigError("rules are a list of tables, each under [[cdc.rules]]")
    return tuple(_parse_rule(item, number) for number, item in enumerate(value, 1))


def _parse_rule(value: Mapping[str, Any], number: int) -> TableRule:
    keys = [item.name for item in fields(TableRule)]
    parsed: dict[str, Any] = {}
    for key, item in value.items():
        if key not in keys:
            near = difflib.get_close_matches(key, keys, 1, 0.0)
            raise ConfigError(f"rule {number}: there is no {key!r}; did you mean {near[0]}?")
        try:
            parsed[key] = _PARSERS[key](item)
        except (ConfigError, TableNameError, ValueError, re.error) as error:
            raise ConfigError(f"rule {number}: {key}: {error}") from None
    rule = TableRule(**parsed)
    _check_templates(rule, number)
    if rule.buckets and rule.partition_by:
        raise ConfigError(f"rule {number}: a table has partition_by or buckets, and not both")
    if rule.partition_by and len({*map(str.lower, rule.partition_by)}) < len(rule.partition_by):
        raise ConfigError(f"rule {number}: partition_by names a column twice")
    return rule


def _check_templates(rule: TableRule, number: int) -> None:
    count = min(map(count_wildcards, rule.tables))
    allowed = {"schema", "table", *map(str, range(1, count + 1))}
    for key in ("namespace", "name", "changes_name"):
        for placeholder in PLACEHOLDER.finditer(getattr(rule, key) or ""):
            if placeholder[1] not in allowed:
                raise ConfigError(
                    f"rule {number}: {key}: {placeholder[0]} stands for nothing; there are "
                    f"{', '.join(f'{{{one}}}' for one in sorted(allowed, reverse=True))}, where a number is that of a "
                    "wildcard in tables"
                )


def _texts(value: Any) -> tuple[str, ...]:
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, Sequence) or not parts or not all(isinstance(part, str) and part for part in parts):
        raise ConfigError("must be a text or a list of texts")
    return tuple(parts)


def _tables(value: Any) -> tuple[str, ...]:
    patterns = _texts(value)
    parse_patterns(patterns)
    return patterns


def _column_patterns(value: Any) -> tuple[str, ...]:
    patterns = _texts(value)
    for pattern in patterns:
        compile_pattern(pattern)
    return patterns


def _columns(value: Any) -> tuple[str, ...]:
    """Names, not patterns; an empty list cancels what an earlier rule set."""
    return () if value in ([], ()) else _texts(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError("must be a text")
    return value


def _namespace(value: Any) -> str:
    split_name(_text(value))
    return str(value)


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigError("must be true or false")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError("must be a whole number, zero or more")
    return value


def _one_of(*allowed: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in allowed:
            raise ConfigError(f"must be one of {', '.join(allowed)}")
        return str(value)

    return parse


def _masks(value: Any) -> tuple[tuple[str, Mask], ...]:
    if not isinstance(value, Mapping) or not value:
        raise ConfigError('must say for each column how it is masked, as in { email = "hash" }')
    for pattern in value:
        compile_pattern(pattern)
    return tuple((pattern, _mask(pattern, item)) for pattern, item in value.items())


def _mask(pattern: str, value: Any) -> Mask:
    if value == "hash" or value == "null":
        return Mask(value)
    if isinstance(value, Mapping) and set(value) == {"constant"} and not isinstance(value["constant"], list | Mapping):
        constant = value["constant"]
        return Mask("constant", ("t" if constant else "f") if isinstance(constant, bool) else str(constant))
    raise ConfigError(f'{pattern} is masked by "hash", "null" or {{ constant = "..." }}')


_PARSERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "tables": _tables,
    "namespace": _namespace,
    "name": _text,
    "changes_name": _text,
    "include_columns": _column_patterns,
    "exclude_columns": _column_patterns,
    "mask": _masks,
    "text_columns": _column_patterns,
    "composites": _one_of(*COMPOSITES),
    "layers": _one_of(*LAYERS),
    "partition_by": _columns,
    "cluster_by": _columns,
    "buckets": _count,
    "deletion_vectors": _switch,
    "change_data_feed": _switch,
    "column_mapping": _switch,
}
