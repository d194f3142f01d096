"""What became of a transaction whose process is gone: its client token tells, and is taken if nobody used it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from deltalakedb.store.proposals import Proposal

if TYPE_CHECKING:
    from deltalakedb.catalog import Catalog


def settle(catalog: Catalog, txn_id: str) -> dict[str, int] | None:
    """The versions that a transaction committed; None: nothing, and from now on it cannot commit any more.

    An empty transaction is committed under the same token. Either the token is there already, or it is taken now and
    whoever still holds the transaction open will be refused: a look-up alone would race with that commit.
    """
    mine = str(uuid.uuid4())
    outcome = catalog.writer.commit(
        Proposal((), mine, txn_id, actor=catalog.actor, origin=catalog.origin, message=f"given up: {txn_id}")
    )
    return outcome.versions if outcome.txn_id == txn_id else None
