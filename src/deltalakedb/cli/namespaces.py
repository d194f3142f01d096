"""`dl namespace`: the namespaces of a catalog, and their properties."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from deltalakedb.cli import output
from deltalakedb.cli.options import CatalogOption, CommandGroup, DryRunOption, command, key_values, open_catalog

if TYPE_CHECKING:
    from deltalakedb.store.namespaces import Namespace

NamespaceArgument = Annotated[
    str, typer.Argument(metavar="NAMESPACE", help="The namespace; write nested ones with dots.")
]
PropertyOption = Annotated[
    list[str] | None, typer.Option("--property", metavar="KEY=VALUE", help="A property of the namespace; repeatable.")
]

group = typer.Typer(cls=CommandGroup, help="Create, drop, list and change namespaces.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    command(group, "create", create, reads=False)
    command(group, "drop", drop, reads=False)
    command(group, "list", list_)
    command(group, "set", set_, reads=False)
    app.add_typer(group, name="namespace")


def create(
    namespace: NamespaceArgument,
    properties: PropertyOption = None,
    if_missing: Annotated[bool, typer.Option("--if-missing", help="Do nothing if it exists.")] = False,
    catalog: CatalogOption = None,
) -> None:
    """Create a namespace. A table's own namespace is created with the table, if it does not exist."""
    with open_catalog(catalog, creates=True) as cat:
        created = cat.create_namespace(namespace, key_values(properties, "--property"), exist_ok=if_missing)
    output.say(f"created the namespace {created.namespace}")


def drop(
    namespace: NamespaceArgument,
    cascade: Annotated[
        bool,
        typer.Option("--cascade", help="Drop its tables and the namespaces inside it first: all of them, or none."),
    ] = False,
    dry_run: DryRunOption = False,
    catalog: CatalogOption = None,
) -> None:
    """Drop a namespace that holds no tables and no namespaces."""
    with open_catalog(catalog) as cat:
        existing = cat.namespace(namespace)
        tables = cat.drop_namespace(namespace, cascade=cascade, dry_run=dry_run)
    with_tables = f" with {len(tables)} tables" if tables else ""
    output.say(f"{'would drop' if dry_run else 'dropped'} the namespace {existing.namespace}{with_tables}")


def list_(
    parent: Annotated[str | None, typer.Argument(metavar="PARENT", help="Only namespaces inside this one.")] = None,
    catalog: CatalogOption = None,
) -> None:
    """List the namespaces with their properties, and when they were created and last changed."""
    with open_catalog(catalog) as cat:
        infos = [cat.namespace(name) for name in cat.namespaces(parent)]
    columns = ("namespace", "created", "changed", "properties")
    rows = [
        (info.namespace, output.iso_ms(info.created_at_ms), output.iso_ms(info.updated_at_ms), _properties_text(info))
        for info in infos
    ]
    output.emit([asdict(info) for info in infos], lambda: output.table(columns, rows))


def set_(
    namespace: NamespaceArgument,
    properties: PropertyOption = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="KEY", help="A property to remove; repeatable.")
    ] = None,
    catalog: CatalogOption = None,
) -> None:
    """Set or remove properties of a namespace; the others stay."""
    changes: dict[str, str | None] = {**key_values(properties, "--property"), **dict.fromkeys(remove or ())}
    if not changes:
        raise typer.BadParameter("give at least one --property KEY=VALUE or --remove KEY")
    with open_catalog(catalog) as cat:
        changed = cat.set_namespace_properties(namespace, changes)
    output.say(f"{changed.namespace}: {_properties_text(changed) or 'no properties'}")


def _properties_text(namespace: Namespace) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(namespace.properties.items()))
