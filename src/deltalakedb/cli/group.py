"""Groups of commands: their help shows the first sentence of each command whole."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class CommandGroup(TyperGroup):
    """typer cuts what does not fit into a line; wrapped, it can be read."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        del ctx
        rows = [(name, command.get_short_help_str(formatter.width * 4)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
