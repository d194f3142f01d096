"""The texts of Postgres' composite values: parsed into the texts of their attributes, or converted to JSON."""

from __future__ import annotations

import json
import math
import re
from typing import Final

from deltalakedb.cdc.decode.array_texts import parse_array
from deltalakedb.log.schema.types import ArrayType, DataType, DecimalType, PrimitiveType, StructType

_ATTRIBUTE: Final = re.compile(r'(?:"((?:[^"\\]|""|\\.)*)"|([^",()\\]*))([,)])', re.DOTALL)
_ESCAPED: Final = re.compile(r'\\(.)|""', re.DOTALL)
_INTEGERS: Final = frozenset({"short", "integer", "long"})


def parse_record(text: str, count: int) -> list[str | None] | None:
    """The texts of `count` attributes: `(1,,"a b")` has three; None if it has another number of them."""
    attributes: list[str | None] = []
    position = 1
    while position < len(text):
        match = _ATTRIBUTE.match(text, position)
        if match is None:
            return None
        quoted, plain, _ = match.groups()
        attributes.append((plain or None) if quoted is None else _ESCAPED.sub(lambda one: one[1] or '"', quoted))
        position = match.end()
    return attributes if text.startswith("(") and len(attributes) == count else None


def to_json_text(text: str | None, shape: DataType) -> str | None:
    """A composite value, or an array of them, as JSON: attributes by name, numbers and booleans as such, everything
    else as text. None if the value does not have the shape."""
    if text is None:
        return "null"
    match shape:
        case StructType():
            return _object(text, shape)
        case ArrayType():
            elements = parse_array(text)
            if elements is None:
                return None
            parts = [to_json_text(element, shape.element_type) for element in elements]
            return None if None in parts else f"[{', '.join(map(str, parts))}]"
        case PrimitiveType("boolean"):
            return "true" if text == "t" else "false"
        case PrimitiveType(name) if name in _INTEGERS:
            return text
        case PrimitiveType("float" | "double") | DecimalType():
            return text if math.isfinite(float(text)) else json.dumps(text)
    return json.dumps(text, ensure_ascii=False)


def _object(text: str, shape: StructType) -> str | None:
    attributes = parse_record(text, len(shape.fields))
    if attributes is None:
        return None
    values = [to_json_text(value, item.type) for value, item in zip(attributes, shape.fields, strict=True)]
    if None in values:
        return None
    names = [json.dumps(item.name, ensure_ascii=False) for item in shape.fields]
    return "{" + ", ".join(f"{name}: {value}" for name, value in zip(names, values, strict=True)) + "}"
