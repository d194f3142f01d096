"""The endpoints of scan plans."""

from __future__ import annotations

from collections.abc import Sequence

from deltalakedb.iceberg.catalog import IcebergCatalog
from deltalakedb.iceberg.planning.service import PlanService
from deltalakedb.serve.iceberg.call import Call, Reply, text_of
from deltalakedb.serve.iceberg.endpoints import TABLE, Endpoint
from deltalakedb.serve.iceberg.explaining import reading, require_table
from deltalakedb.serve.iceberg.identifiers import name_in_path


class PlanEndpoints:
    """Plans scans, repeats and cancels plans, and answers their tasks."""

    def __init__(self, service: IcebergCatalog, plans: PlanService) -> None:
        self._service = service
        self._plans = plans

    def endpoints(self) -> Sequence[Endpoint]:
        return [
            Endpoint("POST", f"{TABLE}/plan", self.plan, "table"),
            Endpoint("GET", f"{TABLE}/plan/{{plan-id}}", self.fetch, "table"),
            Endpoint("DELETE", f"{TABLE}/plan/{{plan-id}}", self.cancel, "table"),
            Endpoint("POST", f"{TABLE}/tasks", self.tasks, "table"),
        ]

    def plan(self, call: Call) -> Reply:
        name = name_in_path(call)
        with reading("table", name):
            table = self._service.load_table(name)
        return Reply(200, self._plans.plan(name, table.table_id, table.metadata, call.body))

    def fetch(self, call: Call) -> Reply:
        require_table(self._service, name_in_path(call))
        return Reply(200, self._plans.fetch(call.path["plan-id"]))

    def cancel(self, call: Call) -> Reply:
        require_table(self._service, name_in_path(call))
        self._plans.cancel(call.path["plan-id"])
        return Reply()

    def tasks(self, call: Call) -> Reply:
        name = name_in_path(call)
        require_table(self._service, name)
        return Reply(200, self._plans.tasks(name, text_of(call.body, "plan-task")))
