"""The endpoints of namespaces."""

from __future__ import annotations

from collections.abc import Sequence

from deltalakedb.catalog.catalog import Catalog
from deltalakedb.exceptions import NamespaceNotEmptyError, NamespaceNotFoundError, TableExistsError
from deltalakedb.rights import Right, SecuredObject, current_access
from deltalakedb.serve.iceberg.call import Call, Reply, texts_by_name, texts_of
from deltalakedb.serve.iceberg.endpoints import NAMESPACE, NAMESPACES, Endpoint
from deltalakedb.serve.iceberg.errors import Refusal
from deltalakedb.serve.iceberg.explaining import namespace_properties
from deltalakedb.serve.iceberg.identifiers import namespace_in_body, namespace_in_path, shown_namespace
from deltalakedb.serve.iceberg.paging import page_of
from deltalakedb.serve.rights import require_allowed_folder
from deltalakedb.store.names import join_namespace, name_key, namespace_parts


class NamespaceEndpoints:
    """Lists, creates, reads, changes and drops namespaces."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def endpoints(self) -> Sequence[Endpoint]:
        return [
            Endpoint("GET", NAMESPACES, self.list, "namespace", right=Right.DISCOVER),
            Endpoint("POST", NAMESPACES, self.create, "namespace", right=Right.CREATE, changes=True),
            Endpoint("GET", NAMESPACE, self.load, "namespace", right=Right.READ),
            Endpoint("HEAD", NAMESPACE, self.exists, "namespace", right=Right.DISCOVER),
            Endpoint("DELETE", NAMESPACE, self.drop, "namespace", right=Right.MANAGE, changes=True),
            Endpoint(
                "POST", f"{NAMESPACE}/properties", self.update_properties, "namespace", right=Right.MANAGE, changes=True
            ),
        ]

    def list(self, call: Call) -> Reply:
        """The namespaces directly in `parent`, or the outermost ones."""
        parent = call.query.get("parent") or None
        namespace = None if parent is None else namespace_in_path(parent)
        if namespace is not None:
            namespace_properties(self._catalog, namespace)
        depth = 1 if namespace is None else len(namespace_parts(namespace)) + 1
        children: dict[str, str] = {}
        for inner in self._catalog.namespaces(namespace):
            child = join_namespace(namespace_parts(inner)[:depth])
            children.setdefault(name_key(child), child)
        page = page_of(call, sorted(children.items()), lambda item: item[0])
        names = [namespace_parts(child) for _, child in page.items]
        return Reply(200, {"namespaces": names, "next-page-token": page.next_token})

    def create(self, call: Call) -> Reply:
        namespace = namespace_in_body(call.body.get("namespace"))
        properties = texts_by_name(call.body, "properties")
        require_allowed_folder(self._catalog, properties)
        try:
            created = self._catalog.create_namespace(namespace, properties)
        except TableExistsError:
            raise Refusal(
                409, "AlreadyExistsException", f"Namespace already exists: {shown_namespace(namespace)}"
            ) from None
        return _described(created.namespace, dict(created.properties))

    def load(self, call: Call) -> Reply:
        namespace = namespace_in_path(call.path["namespace"])
        return _described(namespace, namespace_properties(self._catalog, namespace))

    def exists(self, call: Call) -> Reply:
        namespace_properties(self._catalog, namespace_in_path(call.path["namespace"]))
        return Reply()

    def update_properties(self, call: Call) -> Reply:
        namespace = namespace_in_path(call.path["namespace"])
        removals, updates = texts_of(call.body, "removals"), texts_by_name(call.body, "updates")
        in_both = sorted(set(removals) & set(updates))
        if in_both:
            raise Refusal(
                422,
                "UnprocessableEntityException",
                f"properties cannot be set and removed at once: {', '.join(in_both)}",
            )
        current = namespace_properties(self._catalog, namespace)
        secured = SecuredObject.of_namespace(namespace)
        current_access().require_object(Right.MANAGE, secured, f"the namespace {shown_namespace(namespace)}")
        require_allowed_folder(self._catalog, updates)
        if removals or updates:
            self._catalog.create_namespace(namespace, exist_ok=True)
            self._catalog.set_namespace_properties(namespace, {**updates, **dict.fromkeys(removals)})
        removed = [key for key in dict.fromkeys(removals) if key in current]
        missing = [key for key in dict.fromkeys(removals) if key not in current]
        return Reply(200, {"updated": list(updates), "removed": removed, "missing": missing})

    def drop(self, call: Call) -> Reply:
        namespace = namespace_in_path(call.path["namespace"])
        try:
            self._catalog.drop_namespace(namespace)
        except NamespaceNotFoundError:
            namespace_properties(self._catalog, namespace)
            raise NamespaceNotEmptyError(
                f"the namespace {shown_namespace(namespace)} is not empty: it holds namespaces; drop those first"
            ) from None
        return Reply()


def _described(namespace: str, properties: dict[str, str]) -> Reply:
    return Reply(200, {"namespace": namespace_parts(namespace), "properties": properties})
