"""`dl grant`, `dl revoke`, `dl who-can`: who may do what behind `dl serve`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from deltalakedb.cli import output
from deltalakedb.cli.options import CatalogOption, command, open_catalog

RightArgument = Annotated[
    str,
    typer.Argument(metavar="RIGHT", help="discover, read, write, create or manage; each of read, write and manage "
                   "gives what the ones before it give."),
]  # fmt: skip
_OBJECT = "a table, a view, a namespace (with all that is in it), or catalog; table:NAME or namespace:NAME if in doubt."
OnOption = Annotated[str, typer.Option("--on", metavar="OBJECT", help=f"What the right is on: {_OBJECT}")]
ToOption = Annotated[str, typer.Option("--to", metavar="GRANTEE", help="Who gets it: user:NAME or group:NAME.")]
FromOption = Annotated[str, typer.Option("--from", metavar="GRANTEE", help="Who had it: user:NAME or group:NAME.")]


def add_to(app: typer.Typer) -> None:
    command(app, "grant", grant, reads=False)
    command(app, "revoke", revoke, reads=False)
    command(app, "who-can", who_can)


def grant(right: RightArgument, on: OnOption, to: ToOption, catalog: CatalogOption = None) -> None:
    """Grant a right to a user or a group. Grants hold behind `dl serve`, while rights.mode is on."""
    with open_catalog(catalog) as cat:
        is_new, mode = cat.grant(right, on=on, to=to), cat.config.rights_mode
    output.say(f"granted {right} on {on} to {to}" if is_new else f"{to} has {right} on {on} already; nothing was done")
    if mode == "off":
        output.say("rights.mode is off: grants have no effect until `dl serve` runs with rights.mode=on")


def revoke(right: RightArgument, on: OnOption, grantee: FromOption, catalog: CatalogOption = None) -> None:
    """Revoke a granted right, from the next request on. Rights from other grants stay: see `dl who-can`."""
    with open_catalog(catalog) as cat:
        was_granted = cat.revoke(right, on=on, to=grantee)
        others = [grant for grant in cat.who_can(on, right) if grant.to == grantee]
    done = f"revoked {right} on {on} from {grantee}"
    output.say(done if was_granted else f"{grantee} was not granted {right} on {on} itself; nothing was done")
    for grant in others:
        output.say(f"{grantee} still has it, by the grant of {grant.right} on {grant.on}")


def who_can(
    on: Annotated[str, typer.Argument(metavar="OBJECT", help=f"What to look at: {_OBJECT}")],
    right: Annotated[
        str | None, typer.Option("--right", metavar="RIGHT", help="Only grants that give this right.")
    ] = None,
    catalog: CatalogOption = None,
) -> None:
    """List who has which right on an object, and by which grant, also those on what it is in."""
    with open_catalog(catalog) as cat:
        grants = cat.who_can(on, right)
    columns = ("grantee", "right", "granted on", "granted by", "granted")
    rows = [(row.to, row.right, row.on, row.granted_by or "", output.iso_ms(row.granted_at_ms)) for row in grants]
    output.emit([asdict(row) for row in grants], lambda: output.table(columns, rows))
