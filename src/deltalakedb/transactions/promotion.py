"""Promotion on first write: a table that was attached implicitly becomes managed before its first commit."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from deltalakedb.log.protocol.proposal import NOTHING_READ
from deltalakedb.store import registry
from deltalakedb.store.snapshot import SqlSnapshot
from deltalakedb.transactions.draft import TableDraft

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog

logger = logging.getLogger(__name__)


def promote_draft(catalog: Catalog, draft: TableDraft) -> None:
    """Make the table managed; a draft that has read nothing moves to the newest version, which has the fence."""
    from deltalakedb.mirror.promote import promote

    promotion = promote(
        catalog.store,
        draft.pinned,
        storage_options=draft.options,
        conditional_put=catalog.config.mirror_conditional_put,
        actor=catalog.actor,
        origin=catalog.origin,
    )
    if not promotion.already_managed:
        logger.warning(
            "table %s is managed by this catalog from now on, because it is written through it: other writers meet a "
            "fence in its files at version %d. `dl detach %s` gives it back; catalog.promote_on_write=0 keeps tables "
            "that were attached by the way from being promoted",
            promotion.table.full_name,
            promotion.version,
            promotion.table.full_name,
        )
    draft.pinned = replace(draft.pinned, mode="managed")
    draft.row = replace(draft.row, mode="managed")
    if draft.read == NOTHING_READ and not draft.commits:
        with catalog.store.read(single=True) as conn:
            head = registry.read_head(conn, draft.pinned.table_id)
        assert head is not None, "a promoted table has a head"
        draft.head = head
        draft.base = SqlSnapshot(catalog.store, draft.pinned, head.current_version, head.last_commit_ms)
