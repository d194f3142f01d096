"""Scan plans as rows: what was asked, and what the tasks of the answer are made of again by any process."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any, Final

import orjson

from deltalakedb.exceptions import PlanNotFoundError, PlanTaskNotFoundError
from deltalakedb.store import Store
from deltalakedb.store.connection import Row
from deltalakedb.store.names import TableName

INLINE_FILES: Final = 2_000
"""A plan of at most this many files is answered at once, a larger one in tasks."""

TASK_FILES: Final = 2_000
PLAN_LIFETIME_MS: Final = 3_600_000
_ID_LENGTH: Final = 32


def no_such_plan(plan_id: str) -> PlanNotFoundError:
    return PlanNotFoundError(f"Plan {plan_id[:100]!r} does not exist or has expired; plan the scan again")


class PlanRows:
    """The scan plans of a catalog."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def new_id(self) -> str:
        return uuid.uuid4().hex

    def find(self, plan_id: str) -> Row | None:
        """A plan; None if there is no such plan, or none any more."""
        if len(plan_id) != _ID_LENGTH or not plan_id.isalnum():
            return None
        with self._store.read() as conn:
            return conn.one("select_scan_plan", plan_id=plan_id, now_ms=conn.now_ms())

    def require(self, plan_id: str) -> Row:
        row = self.find(plan_id)
        if row is None:
            raise no_such_plan(plan_id)
        return row

    def task(self, name: TableName, plan_task: str) -> tuple[Row, dict[str, Any], int]:
        """The plan of a task of a table, what it is made by, and the number of its range of files."""
        plan_id, _, number = plan_task.partition("-")
        row = self.find(plan_id)
        context = orjson.loads(row["tasks"]) if row is not None and row["tasks"] else {"ranges": [], "name": None}
        exists = number in map(str, range(len(context["ranges"])))
        if row is None or not exists or context["name"] != list(name.key):
            raise PlanTaskNotFoundError(f"Plan task {plan_task[:100]!r} does not exist or has expired; plan again")
        return row, context, int(number)

    def cancel(self, plan_id: str) -> None:
        """Remove a plan's tasks; PlanNotFoundError if there is no such plan, or none any more."""
        with self._store.write(durable=False) as conn:
            if not conn.run("cancel_scan_plan", plan_id=plan_id, now_ms=conn.now_ms()):
                raise PlanNotFoundError(f"Plan {plan_id[:100]!r} does not exist or has expired")

    def save(
        self,
        plan_id: str,
        table_id: int,
        request: Mapping[str, Any],
        context: Mapping[str, Any],
        statistics: Mapping[str, int],
    ) -> None:
        """Store a plan for as long as its tasks may be asked for, and remove those that have expired."""
        with self._store.write(durable=False) as conn:
            now_ms = conn.now_ms()
            conn.run("delete_expired_scan_plans", now_ms=now_ms)
            conn.run(
                "insert_scan_plan",
                plan_id=plan_id,
                table_id=table_id,
                plan_status="completed",
                request=json.dumps(request),
                tasks=orjson.dumps(context).decode(),
                statistics=orjson.dumps(statistics).decode(),
                created_at_ms=now_ms,
                completed_at_ms=now_ms,
                expires_ms=now_ms + PLAN_LIFETIME_MS,
            )


def task_names(plan_id: str, num_ranges: int) -> dict[str, Any]:
    """The answer that leaves all files to tasks."""
    return {"file-scan-tasks": [], "plan-tasks": [f"{plan_id}-{number}" for number in range(num_ranges)]}
