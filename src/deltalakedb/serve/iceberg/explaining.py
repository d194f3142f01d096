"""Turns errors of the catalog into those that Iceberg's clients expect, with the messages that they look for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from deltalakedb.catalog.catalog import Catalog
from deltalakedb.exceptions import LocationOwnedError, NamespaceNotFoundError, TableExistsError, TableNotFoundError
from deltalakedb.iceberg.catalog import IcebergCatalog
from deltalakedb.serve.iceberg.errors import Refusal, not_found
from deltalakedb.serve.iceberg.identifiers import shown_name, shown_namespace
from deltalakedb.store.names import TableName

Noun = Literal["table", "view"]


def namespace_properties(catalog: Catalog, namespace: str) -> dict[str, str]:
    """Return the properties of a namespace; the protocol's error if it does not exist.

    A namespace that nobody created exists here if another one is inside it: clients walk down from the outermost.
    """
    try:
        return dict(catalog.namespace(namespace).properties)
    except NamespaceNotFoundError:
        if catalog.namespaces(namespace):
            return {}
        raise _no_namespace(namespace) from None


@contextmanager
def reading(noun: Noun, name: TableName) -> Iterator[None]:
    """Explain that a table or view does not exist; a namespace that does not exist has no tables."""
    try:
        yield
    except TableNotFoundError as error:
        raise _no_such(noun, name) from error


def require_table(catalog: IcebergCatalog, name: TableName) -> None:
    """Refuse a table that does not exist."""
    if not catalog.table_exists(name):
        raise _no_such("table", name)


@contextmanager
def creating(catalog: IcebergCatalog, noun: Noun, name: TableName) -> Iterator[None]:
    """Explain that the namespace of a new table or view does not exist, or that the name is taken."""
    try:
        yield
    except NamespaceNotFoundError as error:
        raise _no_namespace(name.namespace) from error
    except LocationOwnedError:  # the name may be free
        raise
    except TableExistsError as error:
        raise _same_name(catalog, noun, name) from error


@contextmanager
def committing(catalog: IcebergCatalog, name: TableName, *, creates: bool) -> Iterator[None]:
    """Explain that the table of a commit does not exist; if the commit creates it, that something has its name."""
    try:
        yield
    except NamespaceNotFoundError as error:
        raise (_no_namespace(name.namespace) if creates else _no_such("table", name)) from error
    except TableNotFoundError as error:
        raise (_same_name(catalog, "table", name) if creates else _no_such("table", name)) from error


@contextmanager
def renaming(catalog: IcebergCatalog, noun: Noun, source: TableName, target: TableName) -> Iterator[None]:
    """Explain which of the two names, or whose namespace, is in the way of a renaming."""
    try:
        yield
    except NamespaceNotFoundError as error:
        is_there = catalog.table_exists(source) if noun == "table" else catalog.view_exists(source)
        raise (_no_namespace(target.namespace) if is_there else _no_such(noun, source)) from error
    except TableNotFoundError as error:
        raise _no_such(noun, source) from error
    except TableExistsError as error:
        holder = _holder(catalog, target).capitalize()
        names = f"{shown_name(source)} to {shown_name(target)}"
        raise _taken(f"Cannot rename {names}. {holder} already exists") from error


def _holder(catalog: IcebergCatalog, name: TableName) -> Noun:
    return "view" if catalog.view_exists(name) else "table"


def _same_name(catalog: IcebergCatalog, noun: Noun, name: TableName) -> Refusal:
    """The refusal of a new table or view whose name is taken, perhaps by one of the other kind."""
    holder = _holder(catalog, name)
    same = "already exists" if holder == noun else "with same name already exists"
    return _taken(f"{holder.capitalize()} {same}: {shown_name(name)}")


def _no_such(noun: Noun, name: TableName) -> Refusal:
    return not_found(noun, f"{noun.capitalize()} does not exist: {shown_name(name)}")


def _no_namespace(namespace: str) -> Refusal:
    return not_found("namespace", f"Namespace does not exist: {shown_namespace(namespace)}")


def _taken(message: str) -> Refusal:
    return Refusal(409, "AlreadyExistsException", message)
