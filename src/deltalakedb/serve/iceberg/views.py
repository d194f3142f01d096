"""The endpoints of views."""

from __future__ import annotations

from collections.abc import Sequence

from deltalakedb.catalog.catalog import Catalog
from deltalakedb.exceptions import TableNotFoundError
from deltalakedb.iceberg.catalog import IcebergCatalog
from deltalakedb.rights import Right
from deltalakedb.serve.iceberg.call import Call, Reply, objects_of, text_of
from deltalakedb.serve.iceberg.endpoints import NAMESPACE, ROOT, VIEW, Endpoint
from deltalakedb.serve.iceberg.errors import bad_request
from deltalakedb.serve.iceberg.explaining import creating, reading, renaming
from deltalakedb.serve.iceberg.identifiers import (
    identifier_in_body,
    name_in_path,
    namespace_in_path,
    shown_name,
    table_name,
)
from deltalakedb.serve.iceberg.listing import list_names
from deltalakedb.serve.iceberg.loading import view_reply


class ViewEndpoints:
    """Lists, creates, loads, replaces, renames, registers and drops views."""

    def __init__(self, catalog: Catalog, service: IcebergCatalog) -> None:
        self._catalog = catalog
        self._service = service

    def endpoints(self) -> Sequence[Endpoint]:
        return [
            Endpoint("GET", f"{NAMESPACE}/views", self.list, "view", right=Right.DISCOVER),
            Endpoint("POST", f"{NAMESPACE}/views", self.create, "view", right=Right.CREATE, changes=True),
            Endpoint("GET", VIEW, self.load, "view", right=Right.READ),
            Endpoint("HEAD", VIEW, self.exists, "view", right=Right.DISCOVER),
            Endpoint("POST", VIEW, self.replace, "view", right=Right.WRITE, changes=True),
            Endpoint("DELETE", VIEW, self.drop, "view", right=Right.MANAGE, changes=True),
            Endpoint("POST", f"{ROOT}/views/rename", self.rename, "view", right=Right.MANAGE, changes=True),
            Endpoint("POST", f"{NAMESPACE}/register-view", self.register, "view", right=Right.CREATE, changes=True),
        ]

    def list(self, call: Call) -> Reply:
        return list_names(call, self._catalog, self._service.list_views)

    def create(self, call: Call) -> Reply:
        name = table_name(namespace_in_path(call.path["namespace"]), text_of(call.body, "name"))
        request = {key: value for key, value in call.body.items() if key != "name"}
        with creating(self._service, "view", name):
            return view_reply(self._service.create_view(name, request))

    def load(self, call: Call) -> Reply:
        name = name_in_path(call, "view")
        with reading("view", name):
            return view_reply(self._service.load_view(name))

    def exists(self, call: Call) -> Reply:
        name = name_in_path(call, "view")
        with reading("view", name):
            if not self._service.view_exists(name):
                raise TableNotFoundError(str(name))
        return Reply()

    def replace(self, call: Call) -> Reply:
        name = name_in_path(call, "view")
        if call.body.get("identifier") is not None and identifier_in_body(call.body["identifier"]).key != name.key:
            raise bad_request(f"the identifier in the body is not {shown_name(name)}, the view in the path")
        # Clients leave out what they require of a view when it is nothing.
        requirements = objects_of(call.body, "requirements") if "requirements" in call.body else []
        with reading("view", name):
            return view_reply(self._service.replace_view(name, requirements, objects_of(call.body, "updates")))

    def drop(self, call: Call) -> Reply:
        name = name_in_path(call, "view")
        with reading("view", name):
            self._service.drop_view(name)
        return Reply()

    def rename(self, call: Call) -> Reply:
        source = identifier_in_body(call.body.get("source"))
        target = identifier_in_body(call.body.get("destination"))
        with renaming(self._service, "view", source, target):
            self._service.rename_view(source, target)
        return Reply()

    def register(self, call: Call) -> Reply:
        name = table_name(namespace_in_path(call.path["namespace"]), text_of(call.body, "name"))
        with creating(self._service, "view", name):
            return view_reply(self._service.register_view(name, text_of(call.body, "metadata-location")))
