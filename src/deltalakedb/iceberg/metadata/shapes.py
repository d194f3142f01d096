"""Reads fields of JSON objects, and refuses those of another shape with one sentence that names the field."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from deltalakedb.exceptions import BadIcebergRequestError

Choice = TypeVar("Choice")

MAX_DEPTH = 200
"""How deep JSON may be nested: far above what tables need, and far below what overflows the stack."""

_INT = 2**31
_LONG = 2**63


def refuse(message: str) -> NoReturn:
    """Raise a BadIcebergRequestError."""
    raise BadIcebergRequestError(message)


def check(condition: bool, message: str) -> None:
    """Raise a BadIcebergRequestError unless the condition holds."""
    if not condition:
        refuse(message)


def brief(value: object) -> str:
    """The value as an error message shows it: not longer than a line."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "an array"
    text = {"None": "null", "True": "true", "False": "false"}.get(repr(value), repr(value))
    return text if len(text) <= 80 else f"{text[:77]}..."


def check_json(value: object, what: str) -> None:
    """Refuse JSON that could not be stored: nested too deeply, numbers beyond 64 bits, text that is not Unicode."""
    open_values: list[tuple[object, int]] = [(value, 0)]
    while open_values:
        item, depth = open_values.pop()
        check(depth <= MAX_DEPTH, f"Cannot parse {what}: it is nested deeper than {MAX_DEPTH} levels")
        if isinstance(item, Mapping):
            for key in item:
                check(isinstance(key, str), f"Cannot parse {what}: a key is not a string: {brief(key)}")
                _check_scalar(key, what)
            open_values += [(child, depth + 1) for child in item.values()]
        elif isinstance(item, list | tuple):
            open_values += [(child, depth + 1) for child in item]
        else:
            _check_scalar(item, what)


def _check_scalar(item: object, what: str) -> None:
    if isinstance(item, str):
        if not item.isascii():
            check(not any("\ud800" <= char <= "\udfff" for char in item), f"Cannot parse {what}: a text is not Unicode")
    elif item is None or isinstance(item, bool):
        return
    elif isinstance(item, int):
        check(-_LONG <= item < _LONG, f"Cannot parse {what}: a number is beyond 64 bits: {brief(item)}")
    elif isinstance(item, float):
        check(math.isfinite(item), f"Cannot parse {what}: a number is not finite")
    else:
        refuse(f"Cannot parse {what}: {type(item).__name__} is not a type of JSON")


def require_object(value: object, what: str) -> Mapping[str, Any]:
    """The value, which must be a JSON object."""
    if not isinstance(value, Mapping):
        refuse(f"Cannot parse {what}: it must be an object, not {brief(value)}")
    return value


def require_list(value: object, what: str) -> Sequence[Any]:
    """The value, which must be a JSON array."""
    if not isinstance(value, list | tuple):
        refuse(f"Cannot parse {what}: it must be an array, not {brief(value)}")
    return value


def is_int(value: object) -> bool:
    """Whether it is an integer of JSON (true and false are integers in Python)."""
    return isinstance(value, int) and not isinstance(value, bool)


def _value(item: Mapping[str, Any], name: str, what: str) -> Any:
    if name not in item:
        refuse(f"Cannot parse {what}: '{name}' is missing")
    return item[name]


def int_field(item: Mapping[str, Any], name: str, what: str) -> int:
    """A 32-bit integer."""
    value = _value(item, name, what)
    check(is_int(value) and -_INT <= value < _INT, f"Cannot parse {what}: '{name}' must be an int, not {brief(value)}")
    return int(value)


def long_field(item: Mapping[str, Any], name: str, what: str) -> int:
    """A 64-bit integer."""
    value = _value(item, name, what)
    fits = is_int(value) and -_LONG <= value < _LONG
    check(fits, f"Cannot parse {what}: '{name}' must be a long, not {brief(value)}")
    return int(value)


def optional_int(item: Mapping[str, Any], name: str, what: str) -> int | None:
    """A 32-bit integer, or None if it is absent or null."""
    return None if item.get(name) is None else int_field(item, name, what)


def optional_long(item: Mapping[str, Any], name: str, what: str) -> int | None:
    """A 64-bit integer, or None if it is absent or null."""
    return None if item.get(name) is None else long_field(item, name, what)


def string_field(item: Mapping[str, Any], name: str, what: str) -> str:
    """A string."""
    value = _value(item, name, what)
    if not isinstance(value, str):
        refuse(f"Cannot parse {what}: '{name}' must be a string, not {brief(value)}")
    return value


def optional_string(item: Mapping[str, Any], name: str, what: str) -> str | None:
    """A string, or None if it is absent or null."""
    return None if item.get(name) is None else string_field(item, name, what)


def bool_field(item: Mapping[str, Any], name: str, what: str) -> bool:
    """True or false."""
    value = _value(item, name, what)
    if not isinstance(value, bool):
        refuse(f"Cannot parse {what}: '{name}' must be true or false, not {brief(value)}")
    return value


def object_field(item: Mapping[str, Any], name: str, what: str) -> Mapping[str, Any]:
    """A JSON object."""
    value = _value(item, name, what)
    if not isinstance(value, Mapping):
        refuse(f"Cannot parse {what}: '{name}' must be an object, not {brief(value)}")
    return value


def list_field(item: Mapping[str, Any], name: str, what: str) -> list[Any]:
    """A JSON array."""
    value = _value(item, name, what)
    if not isinstance(value, list | tuple):
        refuse(f"Cannot parse {what}: '{name}' must be an array, not {brief(value)}")
    return list(value)


def objects_field(item: Mapping[str, Any], name: str, what: str) -> Iterator[Mapping[str, Any]]:
    """The objects of a JSON array."""
    for value in list_field(item, name, what):
        if not isinstance(value, Mapping):
            refuse(f"Cannot parse {what}: '{name}' must hold objects, not {brief(value)}")
        yield value


def int_list(item: Mapping[str, Any], name: str, what: str) -> list[int]:
    """A JSON array of 32-bit integers."""
    values = list_field(item, name, what)
    fits = all(is_int(value) and -_INT <= value < _INT for value in values)
    check(fits, f"Cannot parse {what}: '{name}' must hold ints only")
    return values


def long_list(item: Mapping[str, Any], name: str, what: str) -> list[int]:
    """A JSON array of 64-bit integers."""
    values = list_field(item, name, what)
    fits = all(is_int(value) and -_LONG <= value < _LONG for value in values)
    check(fits, f"Cannot parse {what}: '{name}' must hold longs only")
    return values


def string_list(item: Mapping[str, Any], name: str, what: str) -> list[str]:
    """A JSON array of strings."""
    values = list_field(item, name, what)
    check(all(isinstance(value, str) for value in values), f"Cannot parse {what}: '{name}' must hold strings only")
    return values


def string_map(item: Mapping[str, Any], name: str, what: str) -> dict[str, str]:
    """A JSON object whose values are strings."""
    values = object_field(item, name, what)
    for key, value in values.items():
        check(isinstance(value, str), f"Cannot parse {what}: '{name}.{key}' must be a string, not {brief(value)}")
    return dict(values)


def choose(item: object, name: str, choices: Mapping[str, Choice], what: str) -> Choice:
    """What an object's field chooses by name, whatever the case of its letters; other names are refused."""
    key = string_field(require_object(item, what), name, what).lower()
    if key not in choices:
        refuse(f"Cannot parse {what}: unknown {name} {brief(key)}")
    return choices[key]
