"""Every public member of `deltalake` beside ours: found by introspection, compared, and told as a table for the docs.

`python -m tests.api.signatures` writes the table into docs/from-deltalake.md.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_origin

import deltalake

from tests.api.differences import ABSENT, DIFFERENT, NOTES

PAGE = Path(__file__).parents[2] / "docs" / "from-deltalake.md"
BEGIN, END = "<!-- members: made by python -m tests.api.signatures -->", "<!-- end of members -->"

SPECIAL = ("__arrow_c_schema__", "__arrow_c_stream__", "__arrow_c_array__", "__datafusion_table_provider__")
"""The members with underscores that other libraries call."""

Verdict = Literal["same", "more", "differs", "absent"]
MISSING = object()


@dataclass(frozen=True, slots=True)
class Member:
    """A name of `deltalake`, and what stands at the same place in our package."""

    home: str
    """The module it is imported from, without the package: "" or "table"."""
    name: str
    """`write_deltalake`, `DeltaTable` or `DeltaTable.delete`."""
    theirs: Any
    ours: Any

    @property
    def full_name(self) -> str:
        return f"{self.home}.{self.name}" if self.home else self.name

    def problem(self) -> str | None:
        """What is different in the call, in words; None when every call of theirs is one of ours."""
        if self.ours is MISSING:
            return "absent"
        if inspect.isclass(self.theirs) and issubclass(self.theirs, BaseException):
            return None  # raised, not called
        if get_origin(self.theirs) is not None:
            return None  # an alias for annotations
        if isinstance(self.theirs, property) or not callable(self.theirs):
            # A property may be an attribute of ours, and the other way round; a call in the place of either may not.
            if callable(self.theirs) != callable(self.ours) and not inspect.isdatadescriptor(self.ours):
                return "a method instead of a value"
            return None
        if not callable(self.ours):
            return "a value instead of a method"
        return _difference(_parameters(self.theirs), _parameters(self.ours))

    @property
    def verdict(self) -> Verdict:
        found = self.problem()
        if found is not None:
            return "absent" if found == "absent" else "differs"
        if inspect.isclass(self.theirs) and issubclass(self.theirs, BaseException):
            return "same"
        theirs, ours = _parameters(self.theirs), _parameters(self.ours)
        return "more" if set(ours) - set(theirs) and callable(self.theirs) else "same"


def _parameters(member: Any) -> dict[str, inspect.Parameter]:
    try:
        found = inspect.signature(member).parameters
    except (TypeError, ValueError):
        return {}
    return {name: one for name, one in found.items() if name not in ("self", "cls")}


def _difference(theirs: dict[str, inspect.Parameter], ours: dict[str, inspect.Parameter]) -> str | None:
    unknown = [name for name in theirs if name not in ours]
    if unknown:
        return f"no parameter {', '.join(unknown)}"
    for name, parameter in theirs.items():
        other = ours[name]
        if other.kind != parameter.kind:
            return f"{name} is {other.kind.description}, not {parameter.kind.description}"
        # A default for "not given" only looks like the value it stands for; ours may have one where theirs has none.
        if parameter.default is not parameter.empty and repr(other.default) != repr(parameter.default):
            return f"{name} is {other.default!r} by default, not {parameter.default!r}"
    further = [one for name, one in ours.items() if name not in theirs]
    needed = [one.name for one in further if one.default is one.empty and one.kind not in (2, 4)]
    if needed:
        return f"parameter {', '.join(needed)} must be given"
    placed = [name for name, one in ours.items() if one.kind == one.POSITIONAL_OR_KEYWORD and name in theirs]
    asked = [name for name, one in theirs.items() if one.kind == one.POSITIONAL_OR_KEYWORD]
    leading = [name for name, one in ours.items() if one.kind == one.POSITIONAL_OR_KEYWORD][: len(asked)]
    return None if placed == asked == leading else f"parameters in another order: {placed}"


# ---- what there is


def members() -> Iterator[Member]:
    """Every public name of every module that users import from, classes followed by what is in them."""
    for home, name in _public_names():
        theirs = getattr(import_module(_dotted("deltalake", home)), name)
        ours = _ours(home, name)
        yield Member(home, name, theirs, ours)
        if inspect.isclass(theirs) and not issubclass(theirs, BaseException):
            for inner in _members_of(theirs):
                found = MISSING if ours is MISSING else _static(ours, inner)
                yield Member(home, f"{name}.{inner}", _static(theirs, inner), found)


def _public_names() -> Iterator[tuple[str, str]]:
    """Modules and their names, each object once, where users import it from."""
    yield from (("", name) for name in deltalake.__all__)
    seen = set(deltalake.__all__)
    for home in ("table", "schema", "transaction", "writer", "query", "exceptions", "fs", "warnings"):
        module = import_module(f"deltalake.{home}")
        own = [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
        ]
        extra = {"transaction": ["RemoveAction"]}.get(home, [])
        for name in [*getattr(module, "__all__", own), *extra]:
            if name not in seen:
                seen.add(name)
                yield home, name


def _members_of(kind: type) -> list[str]:
    """Public members in the order of the alphabet; those a class has from Python itself are not its own."""
    given = set(dir(tuple)) | set(dir(object)) if issubclass(kind, tuple) else set(dir(object))
    return [name for name in dir(kind) if name in SPECIAL or not (name.startswith("_") or name in given)]


def _ours(home: str, name: str) -> Any:
    try:
        return getattr(import_module(_dotted("deltalakedb", home)), name, MISSING)
    except ImportError:
        return MISSING


def _static(owner: Any, name: str) -> Any:
    """A member of a class: a property stays one, a method is what an instance or the class would call."""
    fields = getattr(owner, "__dataclass_fields__", {})
    found = inspect.getattr_static(owner, name, fields.get(name, MISSING))
    return getattr(owner, name) if isinstance(found, classmethod | staticmethod) else found


def _dotted(package: str, home: str) -> str:
    return f"{package}.{home}" if home else package


# ---- what is told


def render() -> str:
    """The table of the docs: every member, whether calls of `deltalake` are calls of ours, and what to know."""
    lines = ["| `deltalake` | in `deltalakedb` | to know |", "|---|---|---|"]
    for member in members():
        name = member.full_name
        said = {"same": "same", "more": "same, and more arguments", "differs": "differs", "absent": "not there"}
        why = ABSENT.get(name) or DIFFERENT.get(name) or NOTES.get(name, "")
        lines.append(f"| `{name}` | {said[member.verdict]} | {why} |")
    return "\n".join(lines)


def put_into(page: str) -> str:
    """The page with the table as it is now."""
    made = f"{BEGIN}\n\n{render()}\n\n{END}"
    return re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: made, page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(put_into(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
