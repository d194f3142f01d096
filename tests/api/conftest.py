"""Where the two libraries meet: see both.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import deltalakedb as dl
from tests.api.both import Both, Library

NAMESPACE = "api"


def _pair(stack: ExitStack, folder: Path, name: str, catalog: dl.Catalog | None, prefix: str) -> Both:
    """A pair at a new table; everything it opens is closed with the stack."""
    theirs = Library("deltalake", str(folder / "theirs" / name), folder / "theirs" / name)
    if catalog is None:
        ours = Library("deltalakedb", str(folder / "ours" / name), folder / "ours" / name)
    else:
        table = f"{NAMESPACE}.{name}"
        ours = Library("deltalakedb", f"{prefix}table={table}", folder / "lake" / NAMESPACE / name, catalog)
    both = Both(theirs, ours, lambda other: _pair(stack, folder, other, catalog, prefix))
    stack.callback(both.close)
    return both


def _on(kind: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[Both]:
    with ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("DL_WAREHOUSE", str(folder / "lake"))
        if kind == "path":
            yield _pair(stack, folder, "t", None, "")
            return
        prefix = _catalog_address(kind, folder, request)
        catalog = stack.enter_context(dl.connect(prefix[:-1], warehouse=str(folder / "lake")))
        yield _pair(stack, folder, "t", catalog, prefix)


def _catalog_address(engine: str, folder: Path, request: pytest.FixtureRequest) -> str:
    """A new catalog's URI, up to where `table=` is added."""
    if engine != "postgres":
        request.getfixturevalue("new_catalog")(engine, folder / f"catalog.{engine}")
        return f"deltasql://{engine}/{folder / f'catalog.{engine}'}?"
    words = dict(part.split("=", 1) for part in str(request.getfixturevalue("postgres_catalog")).split())
    return f"postgresql://{words['user']}@/{words['dbname']}?host={words['host']}&port={words['port']}&"


@pytest.fixture
def both(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Both]:
    """Ours is a table of a SQLite catalog."""
    yield from _on("sqlite", tmp_path, request)


@pytest.fixture
def on_paths(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Both]:
    """Ours is a plain folder."""
    yield from _on("path", tmp_path, request)


@pytest.fixture(params=["sqlite", "path"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Both]:
    """Ours is a table of a catalog, then a plain folder."""
    yield from _on(request.param, tmp_path, request)


@pytest.fixture(params=["sqlite", "path"], scope="module")
def kept_anywhere(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """As `anywhere`, once for all tests of a file: they only read."""
    yield from _on(request.param, tmp_path_factory.mktemp("kept"), request)


@pytest.fixture(params=["sqlite", "duckdb", "postgres", "path"])
def everywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Both]:
    """Ours is a table of a catalog on each engine, then a plain folder."""
    yield from _on(request.param, tmp_path, request)
