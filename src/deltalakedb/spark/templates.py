"""SQL text with table names in braces: fills in `{ns.name}` outside of literals, quoted names and comments."""

from __future__ import annotations

import re
from collections.abc import Callable

from deltalakedb.exceptions import ConfigError

# What may contain braces that are no placeholders comes first. Spark's literals have escapes, except raw ones.
_TOKEN = re.compile(
    r"""
      (?P<kept> (?<!\w)[rR](?:'[^']*'|"[^"]*")
              | '(?:[^'\\]|\\.)*'
              | "(?:[^"\\]|\\.)*"
              | `(?:[^`]|``)*`
              | --[^\n]*
              | /\*.*?\*/ )
    | (?P<doubled> \{\{ | \}\} )
    | \{(?P<name>(?:`(?:[^`]|``)*`|[^{}`])*)\}
    | (?P<stray> [{}] )
    """,
    re.VERBOSE | re.DOTALL,
)
_CREATES = re.compile(r"\b(?:create|replace)\s+table\s+(?:if\s+not\s+exists\s+)?\Z", re.IGNORECASE)


def fill(text: str, resolve: Callable[[str, bool], str]) -> str:
    """Replace each placeholder by `resolve(name, creates)`; `{{` and `}}` are braces.

    `creates` is true if the statement creates the table: after CREATE TABLE or REPLACE TABLE.
    """
    parts: list[str] = []
    position = 0
    for token in _TOKEN.finditer(text):
        parts.append(text[position : token.start()])
        position = token.end()
        name = token["name"]
        if token["kept"] is not None:
            parts.append(token["kept"])
        elif token["doubled"] is not None:
            parts.append(token["doubled"][0])
        elif name is None or not name.strip():
            raise ConfigError(
                f"position {token.start()} of the SQL text: a table is written {{namespace.name}}, "
                f"a brace that is meant as one {token[0][0] * 2}"
            )
        else:
            parts.append(resolve(name.strip(), _CREATES.search("".join(parts)) is not None))
    parts.append(text[position:])
    return "".join(parts)


def quoted_path(path: str) -> str:
    """The name of a Delta table at a path in Spark SQL."""
    return "delta.`" + path.replace("`", "``") + "`"
