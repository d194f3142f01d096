"""Owns the text forms of actions: JSON, read and written without loss, and strings escaped for SQL and Arrow."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from deltalakedb.exceptions import MalformedLogError
from deltalakedb.log.protocol.actions import DeletionVector
from deltalakedb.log.protocol.fields import DELETION_VECTOR, REQUIRED, Field, Spec

if TYPE_CHECKING:
    import pyarrow as pa

# Lists the fields that a writer left out and readers such as Spark fill in, so that the line can be rendered unchanged.
ABSENT: Final = "deltalakedb.absent"
_MISSING: Final = object()
_MIN_LONG: Final = -(2**63)
_MAX_LONG: Final = 2**63 - 1


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).raw_decode
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def to_json(value: object) -> str:
    """Renders compact JSON; escapes only control characters and lone surrogates."""
    return escape_surrogates(_encode(value))


def decode_at(text: str, start: int) -> tuple[Any, int, int]:
    """Decodes the JSON value at `start` (after white space); returns it with its begin and end."""
    begin = _skip(text, start)
    value, end = _decode(text, begin)
    return value, begin, end


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position


def expect(text: str, position: int, char: str) -> int:
    """Returns the position after `char`, which must come next (after white space)."""
    position = _skip(text, position)
    if text[position : position + 1] != char:
        raise ValueError(f"expected {char!r} at character {position}")
    return position + 1


def iter_members(text: str, start: int = 0) -> Iterator[tuple[str, int, int]]:
    """Yields name, begin and end of each member of the JSON object at `start`, which must be well-formed."""
    position = _skip(text, expect(text, start, "{"))
    while text[position] != "}":
        name, _, position = decode_at(text, position)
        _, begin, position = decode_at(text, expect(text, position, ":"))
        yield name, begin, position
        position = _skip(text, position)
        if text[position] == ",":
            position = _skip(text, position + 1)


def parse_object(spec: Spec, value: Mapping[str, Any], text: str, start: int) -> Any:
    """Builds one action; `text[start:]` is its source, read only if something must be kept exactly."""
    arguments: list[Any] = []
    exact_fields: list[str] = []  # known fields whose source text goes to `extra`
    absent: list[str] = []
    only_nulls = True
    present = 0
    for item in spec.fields:
        source = value.get(item.name, _MISSING)
        if source is not _MISSING:
            present += 1
        if source is _MISSING or source is None:
            if item.default is REQUIRED:
                raise ValueError(f"field {item.name} is missing")
            if source is None:
                exact_fields.append(item.name)
            elif item.default is not None:
                absent.append(item.name)
            arguments.append(item.default)
        elif item.nested is not None:
            arguments.append(_parse_nested(item, source, text, start))
        else:
            parsed, exact = _read(item, source)
            arguments.append(parsed)
            if not exact:
                exact_fields.append(item.name)
                only_nulls = False
    if present == len(value) and only_nulls and not absent:
        arguments.append(_nulls(tuple(exact_fields)) if exact_fields else "")
    else:
        arguments.append(_cut_extra(spec, exact_fields, absent, text, start))
    return spec.build(*arguments)


def _parse_nested(item: Field, given: object, text: str, start: int) -> Any:
    if not isinstance(given, dict) or item.nested is None:
        raise ValueError(f"field {item.name} is not an object")
    begin = start
    if len(given) != len(item.nested.fields) or None in given.values():
        begin = [position for name, position, _ in iter_members(text, start) if name == item.name][-1]
    return parse_object(item.nested, given, text, begin)


def _read(item: Field, given: Any) -> tuple[Any, bool]:
    """Returns the field's value, and whether rendering it gives the same JSON value."""
    kind: Any = item.type
    if type(given) is kind:
        if kind is str or kind is bool:
            return given, True
        if kind is int:
            if not _MIN_LONG <= given <= _MAX_LONG:
                raise ValueError(f"field {item.name} does not fit 64 bits")
            return given, True
        if kind is dict:
            return _read_map(item.name, given)
        if all(type(entry) is str for entry in given):
            return tuple(given), True
    elif kind is int and isinstance(given, float) and given.is_integer() and abs(given) < 2**53:
        return int(given), False
    raise ValueError(f"field {item.name} is not a {'list of strings' if kind is list else kind.__name__}")


def _read_map(name: str, given: dict[str, Any]) -> tuple[Mapping[str, str | None], bool]:
    for entry in given.values():
        if entry is not None and type(entry) is not str:
            break
    else:
        return given, True
    # Spark reads a number or boolean in a map of strings as its text.
    texts: dict[str, str | None] = {}
    for key, entry in given.items():
        if isinstance(entry, dict | list):
            raise ValueError(f"field {name} holds something else than strings")
        texts[key] = entry if entry is None or isinstance(entry, str) else to_json(entry)
    return texts, False


@lru_cache(maxsize=256)
def _nulls(names: tuple[str, ...]) -> str:
    return _object((name, "null") for name in names)


def _object(members: Iterable[tuple[str, str]]) -> str:
    return "{" + ",".join(f"{to_json(name)}:{text}" for name, text in members) + "}"


def _cut_extra(spec: Spec, kept: list[str], absent: list[str], text: str, start: int) -> str:
    """Builds `extra`: kept fields in the protocol's order, then unknown fields in the order of the source."""
    field_names = {item.name for item in spec.fields}.difference(kept)
    members = dict.fromkeys(kept, "null")
    for name, begin, end in iter_members(text, start):
        if name not in field_names:
            members[name] = escape_surrogates(text[begin:end])
    if ABSENT in members:
        raise ValueError(f"field name {ABSENT} is reserved")
    if absent:
        members[ABSENT] = to_json(absent)
    return _object(members.items()) if members else ""


def render_object(spec: Spec, action: Any) -> str:
    """Renders what `parse_object` read: fields in the protocol's order, then unknown fields as they were."""
    extra = {name: action.extra[begin:end] for name, begin, end in iter_members(action.extra)} if action.extra else {}
    absent = json.loads(extra.pop(ABSENT, "[]"))
    members: list[str] = []
    for item in spec.fields:
        value = getattr(action, item.attribute)
        source = extra.pop(item.name, None)
        if source is not None and value == _reread(item, source):
            members.append(f'"{item.name}":{source}')
        elif value is not None and not (item.name in absent and value == item.default):
            members.append(f'"{item.name}":{_render_value(item, value)}')
    members.extend(f"{_encode(name)}:{text}" for name, text in extra.items())
    return escape_surrogates("{" + ",".join(members) + "}")


def _reread(item: Field, kept: str) -> Any:
    value = json.loads(kept)
    return item.default if value is None else _read(item, value)[0]


def _render_value(item: Field, value: Any) -> str:
    if item.nested is not None:
        return render_object(item.nested, value)
    if type(value) is str:
        return _encode(value)
    if item.type is bool:
        return "true" if value else "false"
    if item.type is int:
        return str(int(value))
    return _encode(dict(value) if item.type is dict else list(value))


def parse_text(spec: Spec, text: str) -> Any:
    """Parses the JSON text of one object, as `render_object` renders it."""
    try:
        value, start, end = decode_at(text, 0)
        if not isinstance(value, dict) or text[end:].strip():
            raise ValueError("not a JSON object")
        return parse_object(spec, value, text, start)
    except (ValueError, RecursionError) as error:
        raise MalformedLogError(f"the field {spec.name} cannot be read: {error}") from error


def deletion_vector_from_json(text: str) -> DeletionVector:
    vector: DeletionVector = parse_text(DELETION_VECTOR, text)
    return vector


def deletion_vector_to_json(vector: DeletionVector) -> str:
    return render_object(DELETION_VECTOR, vector)


# Postgres' text rejects NUL, and UTF-8 has no lone surrogates; the backslash is escaped to keep the mapping one to one.
_UNSAFE = re.compile("[\\\\\x00\ud800-\udfff]")
_ESCAPED = re.compile(r"\\(?:\\|u([0-9a-f]{4}))")
_SURROGATE = re.compile("[\ud800-\udfff]")


def _escape(match: re.Match[str]) -> str:
    char = match.group()
    return "\\\\" if char == "\\" else f"\\u{ord(char):04x}"


def _unescape(match: re.Match[str]) -> str:
    digits = match.group(1)
    return chr(int(digits, 16)) if digits else "\\"


def to_sql_text(text: str) -> str:
    """Escapes text for SQL; ordinary text is returned unchanged (the same object)."""
    return _UNSAFE.sub(_escape, text) if _UNSAFE.search(text) else text


def to_sql_texts(texts: Sequence[str | None]) -> Sequence[str | None]:
    """Applies `to_sql_text` to each text; None stays None."""
    joined = "".join([text for text in texts if text])
    if joined.isascii() and "\\" not in joined and "\0" not in joined:
        return texts
    return [None if text is None else to_sql_text(text) for text in texts]


def from_sql_text(text: str) -> str:
    """The inverse of `to_sql_text`."""
    return _ESCAPED.sub(_unescape, text) if "\\" in text else text


def may_contain(column: pa.StringArray, *needles: bytes) -> bool:
    """False if no string of the column contains any needle; several times as fast as a check of each row."""
    data = column.buffers()[2]
    if data is None:
        return False
    text = data.to_pybytes()
    return any(needle in text for needle in needles)


def escape_surrogates(json_text: str) -> str:
    """Writes lone surrogates in JSON text as \\uXXXX, so that it can be encoded as UTF-8."""
    if json_text.isascii() or not _SURROGATE.search(json_text):
        return json_text
    return _SURROGATE.sub(_escape, json_text)


def key_hash(path: str, dv_id: str) -> bytes:
    """The hash of a file key, used in unique indexes, where long paths do not fit."""
    return hashlib.sha256(f"{path}\0{dv_id}".encode("utf-8", "surrogatepass")).digest()


def key_hashes(paths: Iterable[str], dv_ids: Iterable[str]) -> list[bytes]:
    """Computes `key_hash` of each pair, inlined: a million calls add up."""
    sha256 = hashlib.sha256
    return [
        sha256(f"{path}\0{dv_id}".encode("utf-8", "surrogatepass")).digest()
        for path, dv_id in zip(paths, dv_ids, strict=True)
    ]
