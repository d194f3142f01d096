"""Names of tables and namespaces: what is allowed, how they are parsed, and how they are compared."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from .exceptions import TableNameError

DEFAULT_NAMESPACE = "default"
MAX_PART_LENGTH = 255

# A backslash counts as a slash: a managed table's folder is made from its name.
_FORBIDDEN = {".": "a dot", "/": "a slash", "\\": "a backslash", "'": "a quote", '"': "a quote", "`": "a quote"}
# Control characters, lone surrogates, and the two separators that end a line as a control character does.
_FORBIDDEN_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})


def name_key(text: str) -> str:
    """The form in which names are compared: without regard to case, as Spark SQL does."""
    return text.casefold()


@dataclass(frozen=True, slots=True)
class TableName:
    """A table's full name; the namespace may be nested, its parts joined by dots."""

    namespace: str
    name: str

    @property
    def key(self) -> tuple[str, str]:
        return name_key(self.namespace), name_key(self.name)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"


def is_name_character(char: str) -> bool:
    """Whether a part of a name may contain this character."""
    return char not in _FORBIDDEN and unicodedata.category(char) not in _FORBIDDEN_CATEGORIES


def check_part(part: str, *, whole: str) -> str:
    """Return one part of a name unchanged, or raise a TableNameError that says what is wrong with it."""
    problem = _problem_of(part)
    if problem is None:
        return part
    raise TableNameError(
        f"{_shown(whole)} is not a valid name: {problem}. A name is parts joined by dots, each of 1 to "
        f"{MAX_PART_LENGTH} characters without dot, slash, quote or control character, for example sales.orders"
    )


def parse_table_name(text: str | TableName, *, default_namespace: str = DEFAULT_NAMESPACE) -> TableName:
    """Read `name`, `ns.name` or `outer.inner.name`; a name without a dot is in the default namespace."""
    if isinstance(text, TableName):
        parse_namespace(text.namespace)
        check_part(text.name, whole=str(text))
        return text
    if not isinstance(text, str):
        raise TableNameError(f"a table name must be text such as sales.orders, not {type(text).__name__}")
    parts = [check_part(part, whole=text) for part in text.split(".")]
    return TableName(namespace=".".join(parts[:-1]) or default_namespace, name=parts[-1])


def parse_namespace(text: str) -> str:
    """Check a namespace (nested ones are parts joined by dots) and return it as typed."""
    if not isinstance(text, str):
        raise TableNameError(f"a namespace must be text such as sales, not {type(text).__name__}")
    for part in text.split("."):
        check_part(part, whole=text)
    return text


def _problem_of(part: str) -> str | None:
    if not part:
        return "a part of it is empty"
    if len(part) > MAX_PART_LENGTH:
        return f"a part of it has {len(part)} characters"
    for char in part:
        if char in _FORBIDDEN:
            return f"it contains {_FORBIDDEN[char]}"
        if unicodedata.category(char) in _FORBIDDEN_CATEGORIES:
            return f"it contains the control character U+{ord(char):04X}"
    return None


def _shown(text: str) -> str:
    """The name for an error message: escaped, and short even when the name is not."""
    shown = repr(text)
    return shown if len(shown) <= 80 else shown[:60] + "...'"
