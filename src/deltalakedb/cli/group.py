"""Groups of commands: their help shows the whole first sentence of each command."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class CommandGroup(TyperGroup):
    """Wraps the first sentences of commands; typer would cut them at the end of the line."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        del ctx
        rows = [(name, command.get_short_help_str(formatter.width * 4)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
