"""Parses a schema written as text: `id long not null, day date, tags array<string>`."""

from __future__ import annotations

import re

from deltalakedb.exceptions import InvalidValueError
from deltalakedb.log.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    VariantType,
)

_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s`<>(),:]+)|([<>(),:]))")
_MAX_PRECISION = 38
_MAX_DEPTH = 100
_SHOWN_CHARS = 500
_PRIMITIVES = {
    "string": "string",
    "varchar": "string",
    "text": "string",
    "long": "long",
    "bigint": "long",
    "integer": "integer",
    "int": "integer",
    "short": "short",
    "smallint": "short",
    "byte": "byte",
    "tinyint": "byte",
    "float": "float",
    "real": "float",
    "double": "double",
    "boolean": "boolean",
    "bool": "boolean",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}


def parse_ddl(text: str) -> StructType:
    """The schema of a text such as `id long not null, at timestamp, address struct<street: string, zip: string>`."""
    return _Parser(text).schema()


class _Parser:
    """Parses the words of the text; every error says at which character it is and what is expected."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words: list[tuple[str, bool, int]] = []  # the word, whether it was quoted, and its position
        self._next = 0
        self._depth = 0
        position, length = 0, len(text.rstrip())
        while position < length:
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._refusal("a quote that does not end", position)
            quoted, word, sign = match.groups()
            token = quoted.replace("``", "`") if quoted else word or sign
            self._words.append((token, quoted is not None, match.start(match.lastindex or 0)))
            position = match.end()

    def schema(self) -> StructType:
        fields = self._fields(separator="", end="")
        if not fields:
            raise self._refusal("no column", 0)
        return StructType(tuple(fields))

    def _fields(self, *, separator: str, end: str) -> list[StructField]:
        """Parse columns up to `end`, which is not consumed; in a struct a colon separates name and type."""
        fields: list[StructField] = []
        while not self._at(end):
            name = self._word("a column's name")
            if separator and self._at(separator):
                self._take()
            fields.append(StructField(name, self._type(), not self._not_null()))
            if self._at(end):
                break
            self._expect(",")
        return fields

    def _type(self) -> DataType:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._refusal(f"more than {_MAX_DEPTH} types inside each other", self._place())
        parsed = self._parse_type()
        self._depth -= 1
        return parsed

    def _parse_type(self) -> DataType:
        where = self._place()
        name = self._word("a type").lower()
        match name:
            case "array":
                return ArrayType(self._inside("<", ">")[0])
            case "map":
                key, value = self._inside("<", ">", parts=2)
                return MapType(key, value)
            case "struct":
                self._expect("<")
                fields = self._fields(separator=":", end=">")
                self._expect(">")
                return StructType(tuple(fields))
            case "decimal" | "numeric":
                return self._decimal(where)
            case "variant":
                return VariantType()
        if name not in _PRIMITIVES:
            raise self._refusal(f"the type {name!r}, which is not one of {', '.join(sorted(_PRIMITIVES))}, "
                                "decimal(p,s), array<...>, map<...>, struct<...>, variant", where)  # fmt: skip
        return PrimitiveType(_PRIMITIVES[name])

    def _inside(self, begin: str, end: str, parts: int = 1) -> list[DataType]:
        self._expect(begin)
        types = [self._type()]
        for _ in range(parts - 1):
            self._expect(",")
            types.append(self._type())
        self._expect(end)
        return types

    def _decimal(self, where: int) -> DecimalType:
        if not self._at("("):
            return DecimalType(10, 0)
        self._take()
        precision, scale = self._number(), 0
        if self._at(","):
            self._take()
            scale = self._number()
        self._expect(")")
        if not (1 <= precision <= _MAX_PRECISION and scale <= precision):
            raise self._refusal(f"decimal({precision},{scale}); at most {_MAX_PRECISION} digits are possible", where)
        return DecimalType(precision, scale)

    def _number(self) -> int:
        where = self._place()
        word = self._word("a number")
        if not word.isascii() or not word.isdigit():
            raise self._refusal(f"{word!r} where a number belongs", where)
        return int(word)

    def _not_null(self) -> bool:
        if not self._at("not"):
            return False
        self._take()
        if not self._at("null"):
            raise self._refusal("`not` without `null`", self._place())
        self._take()
        return True

    def _at(self, word: str) -> bool:
        """Whether `word` comes next; "" is the end of the text."""
        if self._next == len(self._words):
            return word == ""
        token, quoted, _ = self._words[self._next]
        return not quoted and token.lower() == word

    def _take(self) -> str:
        word, _, _ = self._words[self._next]
        self._next += 1
        return word

    def _word(self, what: str) -> str:
        if self._next == len(self._words):
            raise self._refusal(f"the end, where {what} belongs", len(self._text))
        word, quoted, where = self._words[self._next]
        if not quoted and word in "<>(),:":
            raise self._refusal(f"{word!r} where {what} belongs", where)
        return self._take()

    def _expect(self, sign: str) -> None:
        if not self._at(sign):
            actual = repr(self._words[self._next][0]) if self._next < len(self._words) else "the end"
            raise self._refusal(f"{actual} where {sign!r} belongs", self._place())
        self._take()

    def _place(self) -> int:
        return self._words[self._next][2] if self._next < len(self._words) else len(self._text)

    def _refusal(self, what: str, where: int) -> InvalidValueError:
        shown = self._text if len(self._text) <= _SHOWN_CHARS else f"{self._text[:_SHOWN_CHARS]}..."
        return InvalidValueError(
            f"the schema {shown!r} has at character {where + 1} {what}; "
            "write it as `id long not null, day date, amount decimal(10,2)`"
        )
