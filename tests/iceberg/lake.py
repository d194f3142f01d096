"""What the tests of Iceberg tables share: small tables, their rows, and the files on the disk."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.table import Table
from pyiceberg.view.metadata import ViewVersion

from deltalakedb import Catalog
from tests.conformance.transacting import numbers

SCHEMA = numbers().schema


def create(catalog: Catalog, name: str, *ids: int, **properties: str) -> Table:
    """An Iceberg table with a column `id`, and a snapshot if ids are given."""
    table = catalog.iceberg().create_table(name, SCHEMA, properties=properties)
    if ids:
        table.append(numbers(*ids))
    return table


def ids_in(table: Table) -> list[int]:
    """The ids in a table, sorted."""
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def ids_of(catalog: Catalog, name: str) -> list[int]:
    """The ids in the Iceberg table of this name, sorted."""
    return ids_in(catalog.iceberg(name))


def files_below(folder: Path) -> set[str]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def names_with_modes(catalog: Catalog) -> dict[str, str]:
    """The tables and views of a catalog with their modes."""
    return {info.full_name: info.mode for info in catalog.table_infos()}


def view_version(sql: str = "select 1 as id") -> ViewVersion:
    """A version of a view for `create_view`."""
    text = {"type": "sql", "sql": sql, "dialect": "spark"}
    return ViewVersion.model_validate({"schema-id": 0, "representations": [text], "default-namespace": ["shop"]})
