"""UpkeepOfTable: what keeps a DeltaTable small, fast and as it is wanted: optimize, vacuum, restore, alter."""

from __future__ import annotations

from deltalakedb.tables.changes import ChangesOfTable


class UpkeepOfTable(ChangesOfTable):
    """Maintenance of files and log, and changes of the table's definition."""
