"""Resolves a table given by name, address, location or as a DeltaTable, and opens its catalog if needed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deltalakedb.catalog.addresses import locate, registered_name
from deltalakedb.catalog.catalog import Catalog, connect
from deltalakedb.catalog.instants import Instant
from deltalakedb.catalog.uri import is_catalog_uri
from deltalakedb.exceptions import ConfigError
from deltalakedb.table import DeltaTable

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

CatalogLike = Catalog | str | os.PathLike[str] | None
"""An open catalog, or its address; None is the one of DL_CATALOG."""


@contextmanager
def opened_catalog(catalog: CatalogLike) -> Iterator[Catalog]:
    """The catalog; closed at the end of the block if it was opened for it."""
    if isinstance(catalog, Catalog):
        yield catalog
        return
    opened = connect(catalog)
    try:
        yield opened
    finally:
        opened.close()


@contextmanager
def opened_table(
    table: str | os.PathLike[str] | DeltaTable,
    catalog: CatalogLike,
    version: int | None = None,
    timestamp: Instant | None = None,
) -> Iterator[DeltaTable]:
    """The table at a version, at a timestamp, or at its newest version; a DeltaTable at its own version."""
    if version is not None and timestamp is not None:
        raise ConfigError("a table is read at a version or at a timestamp, not at both; leave one of them out")
    instant = version if version is not None else timestamp
    if isinstance(table, DeltaTable):
        if instant is not None:
            raise ConfigError("a DeltaTable is read at the version it is at; move it there with load_as_version first")
        yield table
        return
    text = os.fspath(table)
    with _catalog_and_name(text, catalog) as (where, name):
        opened = DeltaTable.from_catalog(where, name)
        if instant is not None:
            opened.load_as_version(instant)
        yield opened


def _catalog_and_name(text: str, catalog: CatalogLike) -> AbstractContextManager[tuple[Catalog, str]]:
    if catalog is not None:
        return _open_named(text, catalog)
    return _open_located(text)


@contextmanager
def _open_named(text: str, catalog: CatalogLike) -> Iterator[tuple[Catalog, str]]:
    if is_catalog_uri(text):
        raise ConfigError("the table's address names its catalog: leave catalog= out, or give the table's name alone")
    with opened_catalog(catalog) as where:
        yield where, str(registered_name(where, text))


@contextmanager
def _open_located(text: str) -> Iterator[tuple[Catalog, str]]:
    where, name = locate(text)
    try:
        yield where, str(name)
    finally:
        where.close()


def storage_options_of(table: DeltaTable) -> Mapping[str, str] | None:
    """The storage options in force for a table's files."""
    return table._backing.storage_options()
