"""Loads the SQL of `store/sql`: named queries, statements of migrations, and the types of the schema's columns.

A query in `sql/queries` has a name, a reason and named parameters. In them 9223372036854775807 (2^63-1) means "current"
or "live". {for update} is a row lock on Postgres and nothing elsewhere: SQLite and DuckDB lock the whole database for a
writer. `{in list (}select ...{)}` runs its select once: for a table that was never analysed Postgres expects one row,
and would otherwise run the select for every row of the other table. {add columns} and {remove columns} stand for
the columns of these actions' fields.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa

from deltalakedb.log.protocol.fields import ADD, REMOVE

SQL_FOLDER = Path(__file__).with_name("sql")

# Text that is not searched for parameters and names, then a parameter, then a name.
_TOKEN = re.compile(
    r"(?P<opaque>'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|::)"
    r"|:(?P<parameter>[a-z_][a-z0-9_]*)"
    r"|(?P<name>(?<![\w.])[a-z_][a-z0-9_]*\b)",
    re.DOTALL | re.IGNORECASE,
)
_ARROW_TYPES = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "text": pa.string(),
    "blob": pa.binary(),
    "double": pa.float64(),
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """An engine's spelling of what the engines do not share."""

    name: str
    parameter: str  # "%s" stands for the parameter's name
    for_update: str = ""
    in_list: tuple[str, str] = ("in (", ")")
    now_ms: str = ""  # the database's clock as an expression
    schema: str = ""
    types: tuple[tuple[str, str], ...] = ()
    doubles_percent: bool = False


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL in an engine's spelling, and the names of its parameters."""

    text: str
    parameters: frozenset[str]


@cache
def named_queries() -> dict[str, str]:
    """All queries by name."""
    queries: dict[str, str] = {}
    for file in sorted((SQL_FOLDER / "queries").glob("*.sql")):
        for block in file.read_text(encoding="utf-8").split("\n-- name: ")[1:]:
            name, _, body = block.partition("\n")
            if name.strip() in queries:
                raise ValueError(f"{file.name}: the query {name.strip()!r} exists twice")
            lines = [line for line in body.splitlines() if not line.lstrip().startswith("--")]
            text = "\n".join(lines).strip().removesuffix(";")
            for spec in (ADD, REMOVE):
                text = text.replace(f"{{{spec.name} columns}}", ", ".join(spec.columns))
            queries[name.strip()] = text
    return queries


@cache
def relations() -> frozenset[str]:
    """The tables and views of the schema."""
    text = (SQL_FOLDER / "schema.sql").read_text(encoding="utf-8") + (SQL_FOLDER / "views.sql").read_text(
        encoding="utf-8"
    )
    return frozenset(re.findall(r"^create (?:table|view) (\w+)", text, re.MULTILINE))


@cache
def table_columns() -> dict[str, dict[str, str]]:
    """Each table's columns with their types, as schema.sql spells them (`double precision` is `double`)."""
    text = (SQL_FOLDER / "schema.sql").read_text(encoding="utf-8")
    tables: dict[str, dict[str, str]] = {}
    for name, body in re.findall(r"^create table (\w+) \(\n(.*?)^\);", text, re.MULTILINE | re.DOTALL):
        tables[name] = dict(re.findall(r"^    (\w+) (bigint|int|boolean|text|blob|double)\b", body, re.MULTILINE))
    return tables


@cache
def arrow_types() -> dict[str, pa.DataType]:
    """The Arrow type of every column name; a name has one type in all tables."""
    return {name: _ARROW_TYPES[kind] for columns in table_columns().values() for name, kind in columns.items()}


@cache
def named(name: str, dialect: Dialect) -> Statement:
    """Returns a named query in an engine's spelling."""
    return spell(named_queries()[name], dialect)


def spell(text: str, dialect: Dialect) -> Statement:
    """Converts SQL with `:name` parameters and bare table names to an engine's spelling."""
    parameters: set[str] = set()

    def replace(match: re.Match[str]) -> str:
        if parameter := match["parameter"]:
            parameters.add(parameter)
            return dialect.parameter % parameter
        whole = match.group()
        if match["name"]:
            return f"{dialect.schema}.{whole}" if dialect.schema and whole in relations() else whole
        return whole

    spelled = _TOKEN.sub(replace, text.replace("%", "%%") if dialect.doubles_percent else text)
    for mark, spelling in (
        ("{for update}", dialect.for_update),
        ("{now ms}", dialect.now_ms),
        ("{in list (}", dialect.in_list[0]),
        ("{)}", dialect.in_list[1]),
    ):
        spelled = spelled.replace(mark, spelling)
    return Statement(spelled, frozenset(parameters))


def _chunks(text: str) -> Iterator[str]:
    """Splits SQL at semicolons at the ends of lines, except inside `$$`."""
    chunk = ""
    for part in re.split(r"(?<=;)[ \t]*(?:\n|\Z)", text):
        chunk += part
        if chunk.count("$$") % 2:
            chunk += "\n"
            continue
        yield chunk.removesuffix(";")
        chunk = ""


def statements(text: str, dialect: Dialect) -> Iterator[str]:
    """Yields the statements of a schema or migration file that apply to an engine, in its spelling."""
    for chunk in _chunks(text):
        engines = re.search(r"^-- engines: (.+)$", chunk, re.MULTILINE)
        body = "\n".join(line for line in chunk.splitlines() if not line.lstrip().startswith("--")).strip()
        if not body or (engines and dialect.name not in engines[1].replace(" ", "").split(",")):
            continue
        if body.startswith("create table"):
            for kind, spelled in dialect.types:
                body = re.sub(rf"(?<=\w ){kind}\b", spelled, body)
        yield spell(body, dialect).text
