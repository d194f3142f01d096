"""The rights of callers at the doors of `dl serve`: each route declares the right that it needs, and runs under it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deltalakedb.exceptions import ConfigError, LocationOwnedError, NamespaceNotEmptyError, redact
from deltalakedb.rights import Right, Rights, acting_with, current_access
from deltalakedb.runtime.caller import current_caller
from deltalakedb.store.names import TableName
from deltalakedb.store.namespaces import LOCATION
from deltalakedb.store.registry import TableRow, resolve_table, table_by_location

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.runtime.config import Config
    from deltalakedb.serve.bridge.places import Place
    from deltalakedb.transactions.draft import TableDraft

Answer = Callable[[Request], Awaitable[Response]]


class Door:
    """Lets callers do what their rights allow."""

    def __init__(self, rights: Rights) -> None:
        self._rights = rights

    @contextmanager
    def admitted(self, right: Right | None) -> Iterator[None]:
        """Do what follows with the rights of the caller. Each table that it looks up needs the right of the route.

        Errors do not name what the caller must not see.
        """
        access = self._rights.access_for(current_caller(), right or Right.DISCOVER)
        if access.is_trusted:
            yield
            return
        try:
            with acting_with(access):
                yield
        except LocationOwnedError:
            raise LocationOwnedError(
                "the location, one around it or one inside it belongs to another table; choose another one"
            ) from None
        except NamespaceNotEmptyError:
            raise NamespaceNotEmptyError("the namespace is not empty; drop or rename what it holds first") from None


def secured_route(path: str, answer: Answer, method: str, right: Right | None) -> Route:
    """A route, and the right that a table needs which its requests name; None: they name none.

    What else a request does, to namespaces and new tables, is checked where it is done.
    """

    async def answer_with(request: Request) -> Response:
        request.state.right = right
        return await answer(request)

    answer_with.right = right  # type: ignore[attr-defined]  # a test looks for routes without one
    return Route(path, answer_with, methods=[method])


def right_of(request: Request) -> Right | None:
    """The right that the route of a request has declared."""
    right: Right | None = request.state.right
    return right


def require_free_name(catalog: Catalog, name: TableName) -> None:
    """Raise NotPermittedError unless the caller may give a table this name, or sees the one that has it."""
    access = current_access()
    if access.is_trusted:
        return
    with catalog.store.read(single=True) as conn:
        holder = resolve_table(conn, name.namespace, name.name)
    if holder is None or not access.sees(holder):
        access.require_create(name, holder)


def require_free_place(catalog: Catalog, place: Place) -> None:
    """Raise NotPermittedError unless the caller may create a table at a place that has none, as the caller sees it."""
    access = current_access()
    if access.is_trusted or place.table is not None or place.name is None:
        return
    with catalog.store.read(single=True) as conn:
        holder = table_by_location(conn, place.location)
    access.require_create(place.name, holder)


def admitted_draft(draft: TableDraft) -> TableRow | None:
    """The table of a draft, None if the caller must not know of it; a new one is the caller's own."""
    return draft.row if draft.is_new or current_access().admit(draft.pinned) is not None else None


def require_proven_callers(config: Config, token: str | None) -> None:
    """Raise ConfigError for an endpoint without a token while rights are on: nobody could be told from others."""
    if config.rights_mode == "on" and token is None:
        raise ConfigError(
            "rights.mode is on, and an endpoint without a token cannot tell its callers apart: start it with a token"
        )


def require_allowed_location(catalog: Catalog, location: str) -> None:
    """Raise NotPermittedError if a caller names a location for tables that is neither in the warehouse nor configured.

    Trusted callers may name any.
    """
    access = current_access()
    if access.is_trusted:
        return
    from deltalakedb.iceberg.metadata_files import is_allowed

    if not is_allowed(location, catalog.config):
        raise access.refused(
            f"put tables at {redact(location)}: allowed are the warehouse and the places in serve.iceberg_locations"
        )


def require_allowed_folder(catalog: Catalog, properties: Mapping[str, Any]) -> None:
    """Raise NotPermittedError if the properties of a namespace put its tables at a location that is not allowed."""
    from deltalakedb.storage.location import canonical_location

    location = properties.get(LOCATION)
    if location is not None and not current_access().is_trusted:
        require_allowed_location(catalog, canonical_location(str(location)))
