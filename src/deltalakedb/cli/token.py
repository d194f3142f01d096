"""`dl token`: the named tokens with which clients use `dl serve`."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from deltalakedb.cli import output
from deltalakedb.cli.options import CatalogOption, CommandGroup, command, open_catalog

if TYPE_CHECKING:
    from deltalakedb.store.tokens import NamedToken

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the token.")]

group = typer.Typer(
    cls=CommandGroup, help="Create, list and revoke tokens for clients of `dl serve`.", no_args_is_help=True
)


def add_to(app: typer.Typer) -> None:
    command(group, "create", create, reads=False)
    command(group, "list", list_)
    command(group, "revoke", revoke, reads=False)
    app.add_typer(group, name="token")


def create(
    name: NameArgument,
    actor: Annotated[
        str | None,
        typer.Option(
            "--actor",
            metavar="USER",
            help="Whose token it is: the name in commits and in the audit; by default NAME.",
        ),
    ] = None,
    groups: Annotated[
        list[str] | None, typer.Option("--group", metavar="GROUP", help="A group of the user; repeatable.")
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires",
            metavar="TIME",
            help="How long it is valid: 30m, 12h, 90d or 4w; otherwise until it is revoked.",
        ),
    ] = None,
    catalog: CatalogOption = None,
) -> None:
    """Create a token and print it. It is shown once; the catalog keeps only a hash of it."""
    lifetime = None if expires is None else _lifetime_of(expires)
    with open_catalog(catalog) as cat:
        created = cat.create_token(name, actor, groups or (), lifetime)
    token = created.token
    ends = "" if token.expires_ms is None else f", valid until {output.iso_ms(token.expires_ms)}"
    output.say(f"created the token {token.name} of {token.actor}{ends}; store it now, it cannot be shown again")
    print(created.secret)


def list_(catalog: CatalogOption = None) -> None:
    """List the tokens, the newest first, also those that are expired or revoked. Secrets are not stored."""
    with open_catalog(catalog) as cat:
        tokens = cat.tokens()
    columns = ("name", "actor", "groups", "id", "created", "by", "expires", "revoked")
    output.emit([asdict(token) for token in tokens], lambda: output.table(columns, map(_row, tokens)))


def revoke(name: NameArgument, catalog: CatalogOption = None) -> None:
    """Revoke a token for good. Running endpoints refuse it two seconds later at the latest."""
    with open_catalog(catalog) as cat:
        token = cat.revoke_token(name)
    output.say(f"revoked the token {token.name} of {token.actor}")


def _row(token: NamedToken) -> tuple[object, ...]:
    times = (token.created_at_ms, token.expires_ms, token.revoked_at_ms)
    created, expires, revoked = map(output.iso_ms, times)
    groups = ", ".join(token.groups)
    return token.name, token.actor, groups, token.token_id, created, token.created_by, expires, revoked


def _lifetime_of(text: str) -> timedelta:
    match = re.fullmatch(r"([1-9][0-9]{0,4})([mhdw])", text)
    if match is None:
        raise typer.BadParameter("must be a whole number of m, h, d or w, such as 90d", param_hint="--expires")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})
