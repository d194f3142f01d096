"""Imports go one way: whoever reads a module needs to know only what lies below it."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "deltalakedb"

# From the top down. A module may import its own room and the rooms of the rows below; rooms of one row know each other
# only where TOGETHER says so. `__init__` is the package's own, which re-exports.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("cli",),
    ("serve",),
    ("cdc",),
    ("spark",),
    ("__init__",),
    ("polars", "fs"),
    # The names of `deltalake`, and what they are made of. A Catalog hands out DeltaTables, DeltaTable(uri) opens a
    # Catalog, and a transaction does both.
    (
        "table",
        "writer",
        "merge",
        "alter",
        "optimize",
        "query",
        "transaction",
        "schema",
        "warnings",
        "catalog",
        "tables",
        "transactions",
    ),
    ("operations",),
    ("mirror",),
    ("store", "files", "data"),
    ("storage",),
    ("telemetry",),
    ("log",),
    ("runtime",),
    ("exceptions",),
)
RANK = {name: len(LAYERS) - row for row, names in enumerate(LAYERS) for name in names}

# Rooms of one row that know each other: what a user sees as one. All others of a row are apart: `store` and `files`
# implement the same two interfaces, and neither knows of Parquet data.
TOGETHER = {row for row in LAYERS if "catalog" in row}

# log/ is values and pure functions: no I/O, no SQL, no clock, no randomness.
FORBIDDEN_IN_LOG = {
    "asyncio", "duckdb", "http", "io", "obstore", "os", "pathlib", "psycopg", "random", "secrets", "shutil", "socket",
    "sqlite3", "subprocess", "tempfile", "threading", "time", "urllib3",
}  # fmt: skip


def layer_of(module: str) -> str:
    """`deltalakedb.store.reader` -> `store`; the package itself -> `__init__`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def module_of(path: Path) -> str:
    parts = ["deltalakedb", *path.relative_to(PACKAGE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Every imported module as (line, dotted name), relative ones made absolute, those inside functions included."""
    package = module_of(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                # `from deltalakedb import store` names a module; `from deltalakedb.store import Store` does not.
                yield node.lineno, f"{module}.{alias.name}" if module == "deltalakedb" else module


def is_below(lower: str, upper: str) -> bool:
    return RANK[lower] < RANK[upper] or any({lower, upper} <= set(row) for row in TOGETHER)


SOURCES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_downwards(path: Path) -> None:
    mine = layer_of(module_of(path))
    assert mine in RANK, f"{path} is in no layer; give it one in LAYERS"
    wrong = []
    for line, name in imports_of(path):
        if name.split(".")[0] != "deltalakedb":
            continue
        theirs = layer_of(name)
        if theirs not in RANK:  # a name of the package's own __init__, such as `from deltalakedb import connect`
            theirs = "__init__"
        if mine != theirs and not is_below(theirs, mine):
            wrong.append(f"{path.relative_to(PACKAGE)}:{line} ({mine}) imports {name} ({theirs})")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", sorted((PACKAGE / "log").rglob("*.py")), ids=lambda path: path.name)
def test_the_log_package_does_no_input_or_output(path: Path) -> None:
    wrong = [
        f"{path.name}:{line} imports {name}"
        for line, name in imports_of(path)
        if name.split(".")[0] in FORBIDDEN_IN_LOG
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_storage_room_speaks_to_object_stores(path: Path) -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line} imports {name}"
        for line, name in imports_of(path)
        if name.split(".")[0] == "obstore" and layer_of(module_of(path)) != "storage"
    ]
    assert not wrong, "\n".join(wrong)


def test_every_engine_name_comparison_stays_inside_the_dialects() -> None:
    """`if dialect.name == ...` outside store/dialects would scatter the differences between engines."""
    wrong = []
    for path in SOURCES:
        if "dialects" in path.parts or path.stem in {"uri", "config"} or layer_of(module_of(path)) == "cli":
            continue
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr == "name":
                engines = {c.value for c in node.comparators if isinstance(c, ast.Constant)}
                if engines & {"sqlite", "duckdb", "postgres"}:
                    wrong.append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert not wrong, "\n".join(wrong)


def test_init_files_only_re_export() -> None:
    allowed = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Expr, ast.If)
    wrong = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in SOURCES
        if path.name == "__init__.py"
        for node in parsed(path).body
        if not isinstance(node, allowed)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_says_in_a_docstring_what_it_owns(path: Path) -> None:
    assert ast.get_docstring(parsed(path)), f"{path.relative_to(PACKAGE)} has none"
