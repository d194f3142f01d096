"""The endpoints of tables, and the commit of several of them at once."""

from __future__ import annotations

from collections.abc import Sequence

from deltalakedb import telemetry
from deltalakedb.catalog.catalog import Catalog
from deltalakedb.iceberg.catalog import IcebergCatalog
from deltalakedb.iceberg.delta.delta_tables import refuse_to_duckdb
from deltalakedb.iceberg.statements import TableChange
from deltalakedb.rights import Right
from deltalakedb.serve.iceberg.call import Call, JsonObject, Reply, flag_of, objects_of, query_flag, text_of
from deltalakedb.serve.iceberg.endpoints import NAMESPACE, ROOT, TABLE, Endpoint
from deltalakedb.serve.iceberg.errors import bad_request
from deltalakedb.serve.iceberg.explaining import committing, creating, reading, renaming, require_table
from deltalakedb.serve.iceberg.identifiers import (
    identifier_in_body,
    name_in_path,
    namespace_in_path,
    shown_name,
    table_name,
)
from deltalakedb.serve.iceberg.listing import list_names
from deltalakedb.serve.iceberg.loading import TableReplies, require_metadata_file, snapshot_mode
from deltalakedb.store.names import TableName

REPORT_TYPES = ("scan-report", "commit-report")


class TableEndpoints:
    """Lists, creates, loads, commits, renames, registers and drops tables."""

    def __init__(self, catalog: Catalog, service: IcebergCatalog, replies: TableReplies) -> None:
        self._catalog = catalog
        self._service = service
        self._replies = replies

    def endpoints(self) -> Sequence[Endpoint]:
        return [
            Endpoint("GET", f"{NAMESPACE}/tables", self.list, "table", right=Right.DISCOVER),
            Endpoint("POST", f"{NAMESPACE}/tables", self.create, "table", right=Right.CREATE, changes=True),
            Endpoint("GET", TABLE, self.load, "table", right=Right.READ),
            Endpoint("HEAD", TABLE, self.exists, "table", right=Right.DISCOVER),
            Endpoint("POST", TABLE, self.commit, "table", right=Right.WRITE, changes=True, is_commit=True),
            Endpoint(
                "POST",
                f"{ROOT}/transactions/commit",
                self.commit_all,
                "table",
                right=Right.WRITE,
                changes=True,
                is_commit=True,
            ),
            Endpoint("DELETE", TABLE, self.drop, "table", right=Right.MANAGE, changes=True),
            Endpoint("POST", f"{ROOT}/tables/rename", self.rename, "table", right=Right.MANAGE, changes=True),
            Endpoint("POST", f"{NAMESPACE}/register", self.register, "table", right=Right.CREATE, changes=True),
            Endpoint("POST", f"{TABLE}/unregister", self.unregister, "table", right=Right.MANAGE, changes=True),
            Endpoint("POST", f"{TABLE}/metrics", self.report_metrics, "table", right=Right.READ),
            Endpoint("GET", f"{TABLE}/credentials", self.credentials, "table", right=Right.READ),
        ]

    def list(self, call: Call) -> Reply:
        return list_names(call, self._catalog, self._service.list_tables)

    def create(self, call: Call) -> Reply:
        """Create a table; with `stage-create` only its first metadata, which a commit makes a table."""
        name = table_name(namespace_in_path(call.path["namespace"]), text_of(call.body, "name"))
        stage = flag_of(call.body, "stage-create")
        request = {key: value for key, value in call.body.items() if key not in ("name", "stage-create")}
        with creating(self._service, "table", name):
            table = self._service.create_table(name, request, stage=stage)
        return self._replies.staged(call, table) if stage else self._replies.loaded(call, table)

    def load(self, call: Call) -> Reply:
        name, mode = name_in_path(call), snapshot_mode(call)
        with reading("table", name):
            table = self._service.load_table(name, snapshots=mode)
        if table.delta is None:
            require_metadata_file(table)
        elif call.headers.get("user-agent", "").startswith("duckdb/"):
            refuse_to_duckdb(table.delta)
        return self._replies.loaded(call, table, mode)

    def exists(self, call: Call) -> Reply:
        require_table(self._service, name_in_path(call))
        return Reply()

    def commit(self, call: Call) -> Reply:
        name = name_in_path(call)
        if call.body.get("identifier") is not None and identifier_in_body(call.body["identifier"]).key != name.key:
            raise bad_request(f"the identifier in the body is not {shown_name(name)}, the table in the path")
        change = _change(name, call.body)
        creates = any(requirement.get("type") == "assert-create" for requirement in change.requirements)
        with committing(self._service, name, creates=creates):
            [table] = self._service.commit([change], token=call.token)
        return self._replies.committed(call, table)

    def commit_all(self, call: Call) -> Reply:
        """Commit changes of several tables at once: all of them or none."""
        bodies = objects_of(call.body, "table-changes")
        changes = [_change(identifier_in_body(body.get("identifier")), body) for body in bodies]
        if changes:
            self._service.commit(changes, token=call.token)
        return Reply()

    def drop(self, call: Call) -> Reply:
        name, purge = name_in_path(call), query_flag(call, "purgeRequested")
        with reading("table", name):
            self._service.drop_table(name, purge=purge)
        return Reply()

    def rename(self, call: Call) -> Reply:
        source = identifier_in_body(call.body.get("source"))
        target = identifier_in_body(call.body.get("destination"))
        with renaming(self._service, "table", source, target):
            self._service.rename_table(source, target)
        return Reply()

    def register(self, call: Call) -> Reply:
        name = table_name(namespace_in_path(call.path["namespace"]), text_of(call.body, "name"))
        location, overwrite = text_of(call.body, "metadata-location"), flag_of(call.body, "overwrite")
        with creating(self._service, "table", name):
            table = self._service.register_table(name, location, overwrite=overwrite)
        return self._replies.loaded(call, table)

    def unregister(self, call: Call) -> Reply:
        name = name_in_path(call)
        with reading("table", name):
            return self._replies.unregistered(self._service.unregister_table(name))

    def report_metrics(self, call: Call) -> Reply:
        """Count a client's report of a scan or a commit."""
        report_type = text_of(call.body, "report-type")
        if report_type not in REPORT_TYPES:
            raise bad_request(f"the field report-type must be one of {', '.join(REPORT_TYPES)}")
        require_table(self._service, name_in_path(call))
        telemetry.iceberg_report(report_type)
        return Reply()

    def credentials(self, call: Call) -> Reply:
        """No credentials: the catalog hands out none."""
        require_table(self._service, name_in_path(call))
        return Reply(200, {"storage-credentials": []})


def _change(name: TableName, body: JsonObject) -> TableChange:
    return TableChange(name, objects_of(body, "requirements"), objects_of(body, "updates"))
