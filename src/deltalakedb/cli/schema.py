"""`dl init` and `dl migrate`: create the metadata schema, and migrate it up or down."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from deltalakedb.cli import output
from deltalakedb.cli.options import CatalogOption, CommandGroup, DryRunOption, command

if TYPE_CHECKING:
    from deltalakedb.catalog.uri import CatalogUri
    from deltalakedb.store import SchemaMode, Store

ToOption = Annotated[int | None, typer.Option("--to", metavar="N", min=0, help="The schema version to end at.")]


def add_to(app: typer.Typer) -> None:
    command(app, "init", init)
    group = typer.Typer(
        cls=CommandGroup, help="Migrate the metadata schema up or down, or show its version.", no_args_is_help=True
    )
    command(group, "up", up)
    command(group, "down", down)
    command(group, "status", status)
    app.add_typer(group, name="migrate")


def init(catalog: CatalogOption = None) -> None:
    """Create the catalog's metadata schema, or bring it up to date."""
    from deltalakedb.store.opening import migration_status

    address, store = _open(catalog, schema="create_if_missing")
    with store:
        version = len(migration_status(store))
    value = {"catalog": str(address), "engine": address.engine, "schema_version": version}
    output.emit(value, lambda: print(f"{address} is at schema version {version}"))


def up(
    catalog: CatalogOption = None,
    to: ToOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Apply the missing migrations, up to --to or all of them."""
    _migrate(catalog, to, dry_run, down=False)


def down(
    to: Annotated[
        int, typer.Option("--to", metavar="N", min=0, help="The schema version to end at; 0 removes everything.")
    ],
    catalog: CatalogOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Revert migrations; the data in what they added is lost."""
    _migrate(catalog, to, dry_run, down=True)


def status(catalog: CatalogOption = None) -> None:
    """List the migrations, and when each was applied."""
    from deltalakedb.store.opening import migration_status

    _, store = _open(catalog)
    with store:
        statuses = migration_status(store)
    rows = [(f"{m.number:04d}", m.name, output.iso_ms(m.applied_at_ms) or "not applied") for m in statuses]
    output.emit([asdict(m) for m in statuses], lambda: output.table(("migration", "name", "applied"), rows))


def _migrate(catalog: str | None, to: int | None, dry_run: bool, *, down: bool) -> None:
    from deltalakedb.store.opening import migrate, migration_status

    address, store = _open(catalog)
    with store:
        known_migrations = migration_status(store)
        now = sum(1 for migration in known_migrations if migration.applied_at_ms is not None)
        target = len(known_migrations) if to is None else to
        if (target > now) if down else (target < now):
            other = "up" if down else "down"
            raise typer.BadParameter(
                f"the schema is at version {now}; use `dl migrate {other} --to {target}`", param_hint="--to"
            )
        if target > len(known_migrations):
            raise typer.BadParameter(f"this code knows schema versions 0 to {len(known_migrations)}", param_hint="--to")
        ran = _plan_migrations(now, target) if dry_run else migrate(store, target)
    verb = "would run" if dry_run else "ran"
    value = {"catalog": str(address), "from": now, "to": target, "migrations": ran, "dry_run": dry_run}
    names = ", ".join(f"{number:04d}" for number in ran) or "nothing"
    output.emit(value, lambda: print(f"{address}: {verb} {names}; schema version {now} -> {target}"))


def _plan_migrations(now: int, target: int) -> list[int]:
    return list(range(now + 1, target + 1)) if target >= now else list(range(now, target, -1))


def _open(catalog: str | None, schema: SchemaMode = "manual") -> tuple[CatalogUri, Store]:
    """Open the database; `manual` leaves its schema as it is."""
    from deltalakedb.catalog.catalog import locate_catalog, open_catalog_store

    address, settings = locate_catalog(catalog)
    return address, open_catalog_store(address, settings, schema=schema)
