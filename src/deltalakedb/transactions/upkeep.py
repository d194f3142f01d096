"""UpkeepStatements: table maintenance in a transaction: optimize, restore, repair, alter."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from deltalakedb.transactions.statements import DataStatements

if TYPE_CHECKING:
    from deltalakedb.alter import TableAlterer
    from deltalakedb.table import DeltaTable
    from deltalakedb.transactions.transaction import CatalogTransaction


class UpkeepStatements(DataStatements):
    """Statements that change a table's files or definition. Vacuum is not one: deleted files cannot be rolled back."""

    def optimize(self, table: str, zorder: Sequence[str] | None = None, **options: Any) -> dict[str, Any]:
        """Run `DeltaTable.optimize.compact`, or `z_order` on the columns `zorder`; `options` are other arguments."""
        optimizer = self._opened(table).optimize
        return optimizer.compact(**options) if zorder is None else optimizer.z_order(zorder, **options)

    def restore(self, table: str, target: int | datetime | str, **options: Any) -> dict[str, Any]:
        """Run `DeltaTable.restore`, to a version that existed when the transaction began."""
        return self._opened(table).restore(target, **options)

    def repair(self, table: str, dry_run: bool = False) -> dict[str, Any]:
        """Run `DeltaTable.repair`."""
        return self._opened(table).repair(dry_run)

    def alter(self, table: str) -> TableAlterer:
        """Return `DeltaTable.alter`; each of its methods is one statement of the transaction."""
        return self._opened(table).alter

    def _opened(self, table: str) -> DeltaTable:
        return cast("CatalogTransaction", self).table(table)
