"""Names of source tables: parsed as users write them, and quoted as SQL and the shell need them."""

from __future__ import annotations

import re
import shlex
from typing import Final

from deltalakedb.exceptions import TableNameError
from deltalakedb.store.names import join_namespace, split_name

_ONE: Final = r'`((?:[^`]|``)+)`(?!`)|"((?:[^"]|"")+)"(?!")|([^.`"][^.]*)'
_PART: Final = re.compile(_ONE)
_PLAIN: Final = re.compile(r"[a-z_][a-z0-9_]*")
_PARTS: Final = re.compile(rf"(?:{_ONE})(?:\.(?:{_ONE}))*")


def parse_source(text: str) -> str:
    """Parse a source table that a user names (`schema.name`, or a name in `public`) into `CapturedTable.source`."""
    parts = split_source(text)
    if len(parts) > 2:
        raise TableNameError(
            f"{text!r} is not schema.name: a name that has a dot in it is written in backticks, for example "
            "public.`a.b`, or as in SQL"
        )
    return join_namespace(parts if len(parts) == 2 else ["public", *parts])


def split_source(text: str) -> list[str]:
    """The parts of a source name, each as it is, in backticks, or in double quotes as in SQL.

    A slash or a quote inside needs neither, because the name is never a path, as a name of the lake might be.
    """
    matches = [] if _PARTS.fullmatch(text) is None else list(_PART.finditer(text))
    if not matches:
        return split_name(text)  # which raises the error
    return [
        part[1].replace("``", "`") if part[1] is not None else (part[2] or "").replace('""', '"') or part[3]
        for part in matches
    ]


def source_parts(source: str) -> list[str]:
    """Schema and name of a `CapturedTable.source`, even if the lake cannot have that name."""
    return split_name(source, checks=False)


def quote_name(name: str) -> str:
    """A name as a person writes it in SQL."""
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def quote_source(source: str) -> str:
    """A source table as a person writes it in SQL."""
    return ".".join(map(quote_name, source_parts(source)))


def resnapshot_command(source: str) -> str:
    """The command that requests a new copy of a source table, as a shell needs it."""
    return f"dl cdc resnapshot {shlex.quote(source)}"


def requote_source(source: str) -> str:
    """A source table that an older capture may have recorded without backticks, in the present form."""
    try:
        parts = source_parts(source)
    except TableNameError:  # quotes and slashes had no backticks around them
        parts = []
    return join_namespace(parts if len(parts) == 2 else source.partition(".")[::2])


def requote_name(name: str) -> str:
    """A table of the lake as an older capture may have recorded it, even one that could not be captured."""
    try:
        parts = split_name(name, checks=False)
    except TableNameError:
        namespace, _, last = name.rpartition(".")
        parts = [*namespace.split("."), last]
    return join_namespace(parts)
