"""`dl comment`, `dl tag`, `dl search`: comments and tags of tables and columns, and the search for them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from deltalakedb.cli import output
from deltalakedb.cli.options import CatalogOption, TableArgument, command, key_values, open_catalog

ColumnOption = Annotated[
    str | None,
    typer.Option(
        "--column", metavar="COLUMN", help="A column instead of the table; write a nested one as outer.inner."
    ),
]


def add_to(app: typer.Typer) -> None:
    command(app, "comment", comment)
    command(app, "tag", tag)
    command(app, "search", search)


def comment(
    table: TableArgument,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="The comment.")] = None,
    column: ColumnOption = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the comment.")] = False,
    catalog: CatalogOption = None,
) -> None:
    """Set or remove the comment on a table or a column. Every Delta reader sees it, in the table's metadata."""
    if (text is None) != remove:
        raise typer.BadParameter("give either the comment or --remove", param_hint="TEXT")
    with open_catalog(catalog) as cat:
        cat.set_comment(table, text, column)
    value = {"table": table, "column": column, "comment": text}
    output.emit(
        value, lambda: output.say(f"{'removed' if remove else 'set'} the comment on {_describe_place(table, column)}")
    )


def tag(
    table: TableArgument,
    tags: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Tags to set; others stay as they are.")
    ] = None,
    column: ColumnOption = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="KEY", help="A tag to remove; repeatable.")
    ] = None,
    catalog: CatalogOption = None,
) -> None:
    """Set or remove tags on a table or a column; `dl search --tag` finds them."""
    changes: dict[str, str | None] = {**key_values(tags, "KEY=VALUE"), **dict.fromkeys(remove or ())}
    if not changes:
        raise typer.BadParameter("give tags as KEY=VALUE, or --remove KEY", param_hint="KEY=VALUE")
    with open_catalog(catalog) as cat:
        cat.set_tags(table, changes, column)
    value = {"table": table, "column": column, "tags": changes}
    output.emit(value, lambda: output.say(f"changed {', '.join(sorted(changes))} on {_describe_place(table, column)}"))


def search(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="WORD", help="Words that must all occur, in any case.")
    ] = None,
    tag: Annotated[
        str | None, typer.Option("--tag", metavar="KEY[=VALUE]", help="A tag of the table or of one of its columns.")
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace", metavar="NAMESPACE", help="Only tables in this namespace or in namespaces inside it."
        ),
    ] = None,
    catalog: CatalogOption = None,
) -> None:
    """Find tables by words in their names, comments, columns and tags, or by a tag; without either, list all tables."""
    with open_catalog(catalog) as cat:
        hits = cat.search(" ".join(words or ()), tag=tag, namespace=namespace)
    rows = [
        (
            hit.table,
            hit.comment,
            ", ".join(f"{name}={value}" for name, value in sorted(hit.tags.items())),
            ", ".join(hit.found_in),
        )
        for hit in hits
    ]
    value = [asdict(hit) for hit in hits]
    output.emit(value, lambda: output.table(("table", "comment", "tags", "found in"), rows))


def _describe_place(table: str, column: str | None) -> str:
    return table if column is None else f"column {column} of {table}"
