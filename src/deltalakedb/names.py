"""Names of tables and namespaces: what is allowed, how they are written, parsed and compared.

A name is a list of parts. As text the parts are joined by dots, and a part with anything but ASCII letters, digits and
`_` is in backticks, a backtick in it doubled: sales.`my-table`, a.`b.c`. Spark SQL reads the same text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from .exceptions import TableNameError

DEFAULT_NAMESPACE = "default"
MAX_PART_LENGTH = 255

# Refused outside of backticks, where they are more likely a path or a piece of SQL than part of a name.
_NEEDS_BACKTICKS = {"/": "a slash", "\\": "a backslash", "'": "a quote", '"': "a quote", "`": "a backtick"}
# Control characters, lone surrogates, and the two separators that end a line as a control character does.
_FORBIDDEN_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})

_PLAIN = re.compile(r"[a-z0-9_]+")
_QUOTED = re.compile(r"`((?:[^`]|``)*)`(?!`)")


def name_key(text: str) -> str:
    """The form in which a part, or a namespace as text, is compared: Unicode lower case, as Spark SQL does.

    The key of a namespace is made of the keys of its parts. That needs a lower case without regard to neighbours, which
    the capital sigma alone does not have: both of its lower cases count as one.
    """
    return text.lower().replace("ς", "σ")


@dataclass(frozen=True, slots=True)
class TableName:
    """A table's full name: the namespace as text (see `join_namespace`), and the last part as it is, unquoted."""

    namespace: str
    name: str

    @property
    def key(self) -> tuple[str, str]:
        return name_key(self.namespace), name_key(self.name)

    def __str__(self) -> str:
        return f"{self.namespace}.{quote_part(self.name)}"


def quote_part(part: str) -> str:
    """One part as it is written in a name: in backticks, unless it is made of ASCII letters, digits and `_`."""
    # Whether it is quoted depends on the key alone: parts that are equal but for their case are quoted alike.
    return part if _PLAIN.fullmatch(name_key(part)) else f"`{part.replace('`', '``')}`"


def split_name(text: str, *, checks: bool = True) -> list[str]:
    """The parts of a name, unquoted; TableNameError if they cannot be told, or (`checks`) one is against the rules."""
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
    """What is left of a name without its parts in backticks: a slash in it is one of a path."""
    return _QUOTED.sub("", text)


def join_namespace(parts: Sequence[str]) -> str:
    """A list of parts as text; the inverse of `namespace_parts`."""
    return ".".join(map(quote_part, parts))


def namespace_parts(namespace: str) -> list[str]:
    """The parts of a namespace; TableNameError if it cannot be one."""
    if not isinstance(namespace, str):
        raise TableNameError(f"a namespace must be text such as sales, not {type(namespace).__name__}")
    return split_name(namespace)


def parse_namespace(text: str) -> str:
    """A namespace in its one spelling, with backticks only where they are needed, in the case it was typed."""
    return join_namespace(namespace_parts(text))


def parse_table_name(text: str | TableName, *, default_namespace: str = DEFAULT_NAMESPACE) -> TableName:
    """Read `name`, `ns.name` or `outer.inner.name`; a name without a dot is in the default namespace."""
    if isinstance(text, TableName):
        return TableName(parse_namespace(text.namespace), check_part(text.name, whole=str(text)))
    if not isinstance(text, str):
        raise TableNameError(f"a table name must be text such as sales.orders, not {type(text).__name__}")
    *namespace, name = split_name(text)
    return TableName(join_namespace(namespace or namespace_parts(default_namespace)), name)


def check_part(part: str, *, whole: str) -> str:
    """Return one part of a name unchanged, or raise a TableNameError that says what is wrong with it."""
    if not part:
        raise _name_error(whole, "a part of it is empty")
    if len(part) > MAX_PART_LENGTH:
        raise _name_error(whole, f"a part of it has {len(part)} characters")
    for char in part:
        if _is_control(char):
            raise _name_error(whole, f"it contains the control character U+{ord(char):04X}")
    return part


def is_name_character(char: str) -> bool:
    """Whether a part may contain this character without being written in backticks."""
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
    """The name for an error message: escaped, and short even when the name is not."""
    shown = repr(text)
    return shown if len(shown) <= 80 else shown[:60] + "...'"
