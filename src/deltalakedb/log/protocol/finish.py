"""Finishes a proposed commit once its version and time are decided, for the log in SQL and the log in files alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from deltalakedb.exceptions import ConcurrentTransactionError, redact
from deltalakedb.log.protocol.actions import Action, AppTransaction, Metadata, Protocol
from deltalakedb.log.protocol.features import writer_features
from deltalakedb.log.protocol.in_commit_timestamps import with_enablement
from deltalakedb.log.protocol.row_tracking import assign_row_ids


@dataclass(slots=True)
class InForce:
    """A table's protocol, metadata and row id mark, before and after each commit that is finished on top of them."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    row_id_mark: int = -1

    def finish(self, proposed: Iterable[Action], *, version: int, at_ms: int, table: str) -> list[Action]:
        """The actions as committed, without commitInfo: enablement of in-commit timestamps and row ids filled in."""
        actions = list(proposed)
        for position, action in enumerate(actions):
            if isinstance(action, Protocol):
                self.protocol = action
            elif isinstance(action, Metadata):
                self.metadata = actions[position] = with_enablement(action, self.metadata, version, at_ms)
        if self.protocol is not None and "rowTracking" in writer_features(self.protocol):
            actions, self.row_id_mark = assign_row_ids(
                actions, version=version, mark=self.row_id_mark, table=table, first_new=self.row_id_mark + 1
            )
        return actions


def check_applications(actions: Iterable[Action], committed: Mapping[str, int], *, table: str, version: int) -> None:
    """Raises unless each application's version grows: a repeated version means that the work is already committed.

    `committed` has the applications' versions at `version` of the table.
    """
    for action in actions:
        if not isinstance(action, AppTransaction):
            continue
        current = committed.get(action.app_id)
        if current is not None and current >= action.version:
            raise ConcurrentTransactionError(
                f"table {redact(table)}: application {action.app_id} is at version {current} already, and this "
                f"transaction would record {action.version}: the work was committed before, or by another process; "
                "nothing was committed",
                table=table,
                version=version,
            )
