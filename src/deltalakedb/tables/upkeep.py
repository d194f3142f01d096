"""UpkeepOfTable: what keeps a DeltaTable small, fast and as it is wanted: optimize, vacuum, restore, alter."""

from __future__ import annotations

from deltalakedb.optimize import TableOptimizer
from deltalakedb.tables.changes import ChangesOfTable


class UpkeepOfTable(ChangesOfTable):
    """Maintenance of files and log, and changes of the table's definition."""

    @property
    def optimize(self) -> TableOptimizer:
        """What makes the table's files fewer, or better sorted."""
        return TableOptimizer(self)
