"""Lists the names of tables or views in a namespace, in pages."""

from __future__ import annotations

from collections.abc import Callable

from deltalakedb.catalog.catalog import Catalog
from deltalakedb.exceptions import NamespaceNotFoundError
from deltalakedb.serve.iceberg.call import Call, Reply
from deltalakedb.serve.iceberg.explaining import namespace_properties
from deltalakedb.serve.iceberg.identifiers import namespace_in_path, to_identifier
from deltalakedb.serve.iceberg.paging import page_of
from deltalakedb.store.names import name_key


def list_names(call: Call, catalog: Catalog, names_in: Callable[[str], list[str]]) -> Reply:
    """Return the names that `names_in` finds in the namespace of the path."""
    namespace = namespace_in_path(call.path["namespace"])
    try:
        names = names_in(namespace)
    except NamespaceNotFoundError:
        names = []
    if not names:
        namespace_properties(catalog, namespace)
    page = page_of(call, sorted(names, key=name_key), name_key)
    identifiers = [to_identifier(namespace, name) for name in page.items]
    return Reply(200, {"identifiers": identifiers, "next-page-token": page.next_token})
