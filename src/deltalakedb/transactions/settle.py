"""Finds the outcome of a transaction whose process died, by its client token; claims the token if it is unused."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from deltalakedb.store.proposals import Proposal

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog


def settle(catalog: Catalog, txn_id: str) -> dict[str, int] | None:
    """Return the versions that a transaction committed; None if it committed nothing, and now it no longer can.

    This commits an empty transaction under the same token. Either the token exists already, or it is claimed now and
    a process that still holds the transaction open is refused. A look-up alone would race with that commit.
    """
    own_txn_id = str(uuid.uuid4())
    outcome = catalog.writer.commit(
        Proposal((), own_txn_id, txn_id, actor=catalog.actor, origin=catalog.origin, message=f"given up: {txn_id}")
    )
    return outcome.versions if outcome.txn_id == txn_id else None
