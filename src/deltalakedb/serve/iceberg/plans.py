"""The endpoints of scan plans."""

from __future__ import annotations

from collections.abc import Sequence

from deltalakedb.iceberg.catalog import IcebergCatalog, LoadedTable
from deltalakedb.iceberg.delta.delta_plan import DeltaPlans
from deltalakedb.iceberg.planning.service import PlanService
from deltalakedb.rights import Right
from deltalakedb.serve.iceberg.call import Call, Reply, text_of
from deltalakedb.serve.iceberg.endpoints import TABLE, Endpoint
from deltalakedb.serve.iceberg.explaining import reading, require_table
from deltalakedb.serve.iceberg.identifiers import name_in_path


class PlanEndpoints:
    """Plans scans, repeats and cancels plans, and answers their tasks."""

    def __init__(self, service: IcebergCatalog, plans: PlanService, delta_plans: DeltaPlans) -> None:
        self._service = service
        self._plans = plans
        self._delta_plans = delta_plans

    def endpoints(self) -> Sequence[Endpoint]:
        return [
            Endpoint("POST", f"{TABLE}/plan", self.plan, "table", right=Right.READ),
            Endpoint("GET", f"{TABLE}/plan/{{plan-id}}", self.fetch, "table", right=Right.READ),
            Endpoint("DELETE", f"{TABLE}/plan/{{plan-id}}", self.cancel, "table", right=Right.READ),
            Endpoint("POST", f"{TABLE}/tasks", self.tasks, "table", right=Right.READ),
        ]

    def plan(self, call: Call) -> Reply:
        table = self._load(call)
        if table.delta is not None:
            for_pyiceberg = call.headers.get("user-agent", "").startswith("PyIceberg/")
            return Reply(200, self._delta_plans.plan(table.name, table.delta, call.body, for_pyiceberg=for_pyiceberg))
        return Reply(200, self._plans.plan(table.name, table.table_id, table.metadata, call.body))

    def fetch(self, call: Call) -> Reply:
        table, plan_id = self._load(call), call.path["plan-id"]
        self._plans.require_of(table.table_id, plan_id)
        if table.delta is not None:
            return Reply(200, self._delta_plans.fetch(table.delta, plan_id))
        return Reply(200, self._plans.fetch(plan_id))

    def cancel(self, call: Call) -> Reply:
        name, plan_id = name_in_path(call), call.path["plan-id"]
        require_table(self._service, name)
        self._plans.require_of(self._service.table_id(name), plan_id)
        self._plans.cancel(plan_id)
        return Reply()

    def tasks(self, call: Call) -> Reply:
        table, task = self._load(call), text_of(call.body, "plan-task")
        if table.delta is not None:
            return Reply(200, self._delta_plans.tasks(table.name, table.delta, task))
        return Reply(200, self._plans.tasks(table.name, task))

    def _load(self, call: Call) -> LoadedTable:
        name = name_in_path(call)
        with reading("table", name):
            return self._service.load_table(name, publish=False)
