"""Names of tables and namespaces: what is allowed, and how they are written, parsed and compared.

A name is a list of parts. As text the parts are joined by dots; a part with anything but ASCII letters, digits and `_`
is in backticks, and a backtick in it is doubled: sales.`my-table`, a.`b.c`. Spark SQL reads the same text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from deltalakedb.exceptions import TableNameError

DEFAULT_NAMESPACE = "default"
MAX_PART_LENGTH = 255

# Refused outside backticks, where they more likely belong to a path or to SQL than to a name.
_NEEDS_BACKTICKS = {"/": "a slash", "\\": "a backslash", "'": "a quote", '"': "a quote", "`": "a backtick"}
# Control characters, lone surrogates, and the two separators that break a line like a control character.
_FORBIDDEN_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})

_PLAIN = re.compile(r"[a-z0-9_]+")
_QUOTED = re.compile(r"`((?:[^`]|``)*)`(?!`)")


def name_key(text: str) -> str:
    """Return the form in which a part, or a namespace as text, is compared: Unicode lower case, as in Spark SQL.

    The key of a namespace consists of the keys of its parts. This requires that lower case does not depend on
    neighbouring letters; only the capital sigma violates that, so both of its lower-case forms count as one.
    """
    return text.lower().replace("ς", "σ")


@dataclass(frozen=True, slots=True)
class TableName:
    """A table's full name: the namespace as text (see `join_namespace`), and the last part, unquoted."""

    namespace: str
    name: str

    @property
    def key(self) -> tuple[str, str]:
        return name_key(self.namespace), name_key(self.name)

    def __str__(self) -> str:
        return full_name(self.namespace, self.name)


@lru_cache(maxsize=4096)
def full_name(namespace: str, name: str) -> str:
    """Return a table's full name as it is written; every message and every commit has it."""
    return f"{namespace}.{quote_part(name)}"


def quote_part(part: str) -> str:
    """Return a part as it is written in a name: in backticks, unless it has only ASCII letters, digits and `_`."""
    # Quoting depends on the key alone, so that parts which differ only in case are quoted alike.
    return part if _PLAIN.fullmatch(name_key(part)) else f"`{part.replace('`', '``')}`"


def split_name(text: str, *, checks: bool = True) -> list[str]:
    """Split a name into its unquoted parts; TableNameError if it is malformed, or (`checks`) a part is invalid."""
    parts, start = [], 0
    while True:
        quoted = _QUOTED.match(text, start)
        if quoted is not None:
            part, end = quoted[1].replace("``", "`"), quoted.end()
        else:
            part = text[start:].partition(".")[0]
            end = start + len(part)
            _check_unquoted(part, text)
        parts.append(check_part(part, whole=text) if checks else part)
        if end == len(text):
            return parts
        if text[end] != ".":
            raise _name_error(text, "there is text after a closing backtick")
        start = end + 1


def outside_backticks(text: str) -> str:
    """Return a name without its parts in backticks: a slash in the rest belongs to a path."""
    return _QUOTED.sub("", text)


def join_namespace(parts: Sequence[str]) -> str:
    """Join parts to a namespace as text; the inverse of `namespace_parts`."""
    return ".".join(map(quote_part, parts))


def namespace_parts(namespace: str) -> list[str]:
    """Split a namespace into its parts; TableNameError if it is invalid."""
    if not isinstance(namespace, str):
        raise TableNameError(f"a namespace must be text such as sales, not {type(namespace).__name__}")
    return split_name(namespace)


def parse_namespace(text: str) -> str:
    """Return a namespace in canonical form: backticks only where needed, the case as typed."""
    return join_namespace(namespace_parts(text))


def parse_table_name(text: str | TableName, *, default_namespace: str = DEFAULT_NAMESPACE) -> TableName:
    """Parse `name`, `ns.name` or `outer.inner.name`; a name without a dot is in the default namespace."""
    if isinstance(text, TableName):
        return TableName(parse_namespace(text.namespace), check_part(text.name, whole=str(text)))
    if not isinstance(text, str):
        raise TableNameError(f"a table name must be text such as sales.orders, not {type(text).__name__}")
    return _parse_text(text, default_namespace)


@lru_cache(maxsize=4096)
def _parse_text(text: str, default_namespace: str) -> TableName:
    *namespace, name = split_name(text)
    return TableName(join_namespace(namespace or namespace_parts(default_namespace)), name)


def check_part(part: str, *, whole: str) -> str:
    """Return one part of a name unchanged, or raise a TableNameError that says what is wrong with it."""
    if not part:
        raise _name_error(whole, "a part of it is empty")
    if len(part) > MAX_PART_LENGTH:
        raise _name_error(whole, f"a part of it has {len(part)} characters")
    if not part.isprintable():  # which a control character is not
        for char in part:
            if _is_control(char):
                raise _name_error(whole, f"it contains the control character U+{ord(char):04X}")
    return part


def is_name_character(char: str) -> bool:
    """Return whether a part may contain this character without backticks."""
    return char != "." and char not in _NEEDS_BACKTICKS and not _is_control(char)


def _is_control(char: str) -> bool:
    return unicodedata.category(char) in _FORBIDDEN_CATEGORIES


def _check_unquoted(part: str, whole: str) -> None:
    if part.startswith("`"):
        raise _name_error(whole, "a backtick is not closed")
    for char, what in _NEEDS_BACKTICKS.items():
        if char in part:
            raise _name_error(whole, f"it contains {what} outside of backticks")


def _name_error(whole: str, problem: str) -> TableNameError:
    return TableNameError(
        f"{_format_name(whole)} is not a valid name: {problem}. A name is parts joined by dots, each of 1 to "
        f"{MAX_PART_LENGTH} characters, for example sales.orders; a part with a dot, slash or quote in it is in "
        "backticks, for example sales.`a/b`, and no part has a control character"
    )


def _format_name(text: str) -> str:
    """Return the name for an error message: escaped and shortened."""
    text_repr = repr(text)
    return text_repr if len(text_repr) <= 80 else text_repr[:60] + "...'"
