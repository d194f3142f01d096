"""Imports go one way: whoever reads a module needs to know only what lies below it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "deltalakedb"

# From the top down. A module may import its own room and the rooms of the rows below, never another room of its row:
# `store` and `files` implement the same two interfaces, and neither knows of Parquet data. `__init__` is the package's
# own, which re-exports.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("cli",),
    ("serve",),
    ("iceberg",),
    ("cdc",),
    ("spark",),
    ("__init__",),
    ("polars", "fs", "_internal"),
    ("writer", "query"),
    ("transactions",),
    ("table",),
    ("tables",),
    ("alter", "merge", "optimize"),
    ("catalog",),
    ("transaction", "schema", "warnings"),
    ("operations",),
    ("mirror",),
    ("rights",),
    ("store", "files", "data"),
    ("storage",),
    ("telemetry",),
    ("log",),
    ("runtime",),
    ("exceptions",),
)
RANK = {name: len(LAYERS) - row for row, names in enumerate(LAYERS) for name in names}

# Upward imports, allowed only where they happen late: inside a function, for types, or by the module's name. Each is a
# call that hands out, or takes, an object of the room above.
LATE = {
    ("catalog", "table"): "a Catalog hands out DeltaTables, and a DeltaTable opens a Catalog",
    ("catalog", "transactions"): "a Catalog hands out CatalogTransactions",
    ("catalog", "iceberg"): "a Catalog hands out PyIceberg's tables and catalogs",
    ("mirror", "iceberg"): "a purge deletes the files of Iceberg tables too",
    ("transactions", "iceberg"): "a CatalogTransaction hands out PyIceberg's tables and catalogs",
    ("table", "writer"): "a DeltaTable takes WriterProperties",
    ("tables", "writer"): "restoring raw files is a write",
    ("tables", "table"): "maintenance takes the DeltaTable that it changes",
    ("transactions", "writer"): "a transaction takes WriterProperties",
    ("alter", "table"): "TableAlterer holds its DeltaTable",
    ("alter", "tables"): "add_feature takes TableFeatures",
    ("optimize", "table"): "TableOptimizer holds its DeltaTable",
    ("transaction", "tables"): "create_table_with_add_actions, a name of `deltalake`, creates a table",
    ("transactions", "spark"): "a transaction writes the rows of a Spark DataFrame",
    ("spark", "serve"): "a session without an endpoint serves its catalog itself",
}

# Verbs return the commit to propose and do not know where the log is. These two read it: one looks at a folder before
# there is a table, the other removes old log files.
VERBS_THAT_READ_THE_LOG = {"folder.py", "log_files.py"}

# log/ is values and pure functions: no I/O, no SQL, no clock, no randomness. `urllib` parses.
ALLOWED_IN_LOG = {
    "__future__", "bisect", "collections", "dataclasses", "datetime", "decimal", "deltalakedb", "enum", "fractions",
    "functools", "hashlib", "itertools", "json", "math", "numpy", "operator", "orjson", "pyarrow", "re", "sqlglot",
    "struct", "typing", "urllib",
}  # fmt: skip
FORBIDDEN_CALLS_IN_LOG = {"now", "open", "print", "today", "urlopen", "utcnow", "uuid1", "uuid4"}

# Who may import a library. The command line's are loaded by `dl` alone, the others by the room that wraps them.
LIBRARIES = {
    "adbc_driver_postgresql": {"cdc", "store/dialects"},
    "fastavro": {"iceberg"},
    "joserfc": {"serve"},
    "duckdb": {"cdc", "data", "query", "store/dialects"},
    "obstore": {"storage"},
    "opentelemetry": {"telemetry"},
    "prometheus_client": {"cli", "telemetry"},
    "psycopg": {"cdc", "store/dialects"},
    "py4j": {"cdc", "spark"},
    "pyiceberg": {"iceberg"},
    "pyspark": {"cdc", "spark"},
    "rich": {"cli"},
    "sqlite3": {"cli", "store/dialects"},
    "starlette": {"serve"},
    "typer": {"cli"},
    "uvicorn": {"serve"},
}


@dataclass(frozen=True, slots=True)
class Import:
    line: int
    name: str
    late: bool
    """Not done when the module is loaded: inside a function, for types only, or by `import_module`."""


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


@cache
def imports_of(path: Path) -> tuple[Import, ...]:
    """Every imported module, relative names made absolute, those inside functions included."""
    package = module_of(path).split(".")
    return tuple(_imports_in(parsed(path), package if path.name == "__init__.py" else package[:-1], late=False))


def _imports_in(tree: ast.AST, package: list[str], *, late: bool) -> Iterator[Import]:
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.Import():
                yield from (Import(node.lineno, alias.name, late) for alias in node.names)
            case ast.ImportFrom():
                base = package[: len(package) - node.level + 1] if node.level else []
                module = ".".join([*base, *([node.module] if node.module else [])])
                for alias in node.names:
                    # `from deltalakedb import store` names a module; `from deltalakedb.store import Store` does not.
                    name = f"{module}.{alias.name}"
                    yield Import(node.lineno, name if module == "deltalakedb" or name in MODULES else module, late)
            case ast.Call(func=ast.Name(id="import_module"), args=[ast.Constant(value=str(name)), *_]):
                yield Import(node.lineno, name, late=True)
            case _:
                for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
                inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                yield from _imports_in(node, package, late=late or for_types or inside)


def layer_of_import(name: str) -> str | None:
    """The layer of an imported module; None for a module of another package."""
    if name.split(".")[0] != "deltalakedb":
        return None
    layer = layer_of(name)
    # A name of the package's own __init__, such as `from deltalakedb import connect`.
    return layer if layer in RANK else "__init__"


SOURCES = sorted(PACKAGE.rglob("*.py"))
MODULES = {module_of(path): path for path in SOURCES}


def test_every_layer_exists_and_is_listed_once() -> None:
    listed = [name for row in LAYERS for name in row]
    rooms = {layer_of(module) for module in MODULES}
    assert sorted(listed) == sorted(rooms)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_downwards(path: Path) -> None:
    mine = layer_of(module_of(path))
    assert mine in RANK, f"{path} is in no layer; give it one in LAYERS"
    wrong = []
    for found in imports_of(path):
        theirs = layer_of_import(found.name)
        if theirs is None or theirs == mine or RANK[theirs] < RANK[mine]:
            continue
        if not (found.late and (mine, theirs) in LATE):
            wrong.append(f"{path.relative_to(PACKAGE)}:{found.line} ({mine}) imports {found.name} ({theirs})")
    assert not wrong, "\n".join(wrong)


def test_every_upward_import_that_is_allowed_is_used() -> None:
    used = {
        (layer_of(module), layer_of_import(found.name))
        for module, path in MODULES.items()
        for found in imports_of(path)
    }
    assert LATE.keys() <= used


def test_no_modules_import_each_other_when_they_are_loaded() -> None:
    below = {
        module: {found.name for found in imports_of(path) if not found.late and found.name in MODULES} - {module}
        for module, path in MODULES.items()
    }
    while free := [module for module, imported in below.items() if not imported & below.keys()]:
        for module in free:
            del below[module]
    assert not below, f"import each other, or what does: {sorted(below)}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "operations").rglob("*.py")), ids=lambda path: path.name)
def test_a_verb_does_not_know_where_the_log_is(path: Path) -> None:
    if path.name in VERBS_THAT_READ_THE_LOG:
        return
    wrong = [
        f"{path.name}:{found.line} imports {found.name}"
        for found in imports_of(path)
        if layer_of_import(found.name) in {"store", "files", "mirror"}
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_is_imported_only_by_the_rooms_that_wrap_it(library: str) -> None:
    rooms = {
        "store/dialects" if "dialects" in path.parts else layer_of(module)
        for module, path in MODULES.items()
        if any(found.name.split(".")[0] == library for found in imports_of(path))
    }
    assert rooms == LIBRARIES[library]


@pytest.mark.parametrize("path", sorted((PACKAGE / "log").rglob("*.py")), ids=lambda path: path.name)
def test_the_log_package_does_no_input_or_output(path: Path) -> None:
    wrong = [
        f"{path.name}:{found.line} imports {found.name}"
        for found in imports_of(path)
        if found.name.split(".")[0] not in ALLOWED_IN_LOG
    ]
    wrong += [
        f"{path.name}:{node.lineno} calls {ast.unparse(node.func)}"
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in FORBIDDEN_CALLS_IN_LOG
    ]
    assert not wrong, "\n".join(wrong)


def test_every_engine_name_comparison_stays_inside_the_dialects() -> None:
    """`if dialect.name == ...` outside store/dialects would scatter the differences between engines.

    Addresses are spelled differently by engine; that is all that `catalog/uri.py` and `dl` know of them.
    """
    allowed = {"catalog/uri.py", "cli/options.py"}
    engines = {"sqlite", "duckdb", "postgres"}
    places = set()
    for path in SOURCES:
        place = str(path.relative_to(PACKAGE))
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Compare | ast.MatchValue) and "dialects" not in path.parts:
                texts = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
                if texts & engines:
                    places.add(place)
    assert places == allowed


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
