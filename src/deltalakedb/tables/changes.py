"""ChangesOfTable: what changes the rows of a DeltaTable: delete, update, merge. Each is one commit."""

from __future__ import annotations

from deltalakedb.tables.rows import RowsOfTable


class ChangesOfTable(RowsOfTable):
    """Changes work on the newest version, and move this object to the version they make."""
