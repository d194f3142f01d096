"""Transaction: how far an application has come (the `txn` action), under the name that `deltalake` gives it."""

from __future__ import annotations

from .log.actions import AppTransaction

Transaction = AppTransaction
