"""Access: what one caller may do, as the rest of the package asks for it; everything, unless a door says otherwise."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

from deltalakedb.exceptions import NotPermittedError
from deltalakedb.rights.grants import HeldRights, Right, SecuredObject, around, held_by, is_allowed
from deltalakedb.runtime.caller import Caller
from deltalakedb.store import Store
from deltalakedb.store.grants import grants_of, namespaces_of_granted, read_epoch
from deltalakedb.store.names import TableName, name_key
from deltalakedb.store.registry import TableRow

MOST_CALLERS = 4096
OWN_TOKEN = "endpoint"
"""The proof of a caller who has the token that the endpoint was started with."""


class Rights:
    """Loads the grants of callers; they are read again once any grant has changed."""

    def __init__(self, store: Store, *, is_on: bool = True) -> None:
        self._store = store
        self._is_on = is_on
        self._held: OrderedDict[tuple[str, frozenset[str]], tuple[int, HeldRights]] = OrderedDict()
        self._lock = Lock()

    def restricts(self, caller: Caller | None) -> bool:
        """Return whether a caller may do only what was granted: rights are on, and the caller is not trusted.

        Trusted are code of this process, which has no caller, and the owner of the endpoint's own token.
        """
        return self._is_on and caller is not None and caller.proof != OWN_TOKEN

    def access_for(self, caller: Caller | None, needed: Right = Right.DISCOVER) -> Access:
        """Return what a caller may do now, everything if the caller is trusted or rights are off."""
        return self.access_of(caller, needed) if caller is not None and self.restricts(caller) else TRUSTED

    def access_of(self, caller: Caller, needed: Right = Right.DISCOVER) -> Access:
        """Return what a caller may do now; `needed` is the right that `admit` asks for."""
        return Access(self, caller, self.held(caller), needed)

    def held(self, caller: Caller) -> HeldRights:
        """Return the rights of a caller as the database has them now."""
        key = (caller.name, caller.groups)
        with self._store.read(single=True) as conn:
            epoch = read_epoch(conn)
        with self._lock:
            cached = self._held.get(key)
            if cached is not None and cached[0] == epoch:
                self._held.move_to_end(key)
                return cached[1]
        with self._store.read() as conn:  # one snapshot: the grants are those of this epoch
            epoch = read_epoch(conn)
            held = held_by(caller, grants_of(conn, caller.name, caller.groups))
        with self._lock:
            self._held[key] = (epoch, held)
            while len(self._held) > MOST_CALLERS:
                self._held.popitem(last=False)
        return held

    def namespaces_of_tables(self, caller: Caller) -> list[str]:
        """Return the namespaces of the tables on which the caller was granted something."""
        with self._store.read(single=True) as conn:
            return namespaces_of_granted(conn, caller.name, caller.groups)


class Access:
    """What a caller may do. Without `rights` everything: the caller is trusted, or rights are off."""

    def __init__(
        self,
        rights: Rights | None = None,
        caller: Caller | None = None,
        held: HeldRights | None = None,
        needed: Right = Right.DISCOVER,
    ) -> None:
        self._rights = rights
        self._caller = caller
        self._held = held or {}
        self._needed = needed
        self._namespaces: frozenset[str] | None = None

    @property
    def is_trusted(self) -> bool:
        return self._rights is None

    @property
    def owner(self) -> str | None:
        """The user who gets the right to manage what is created; None if the creator is trusted."""
        return None if self.is_trusted or self._caller is None else self._caller.name

    def now(self) -> Access:
        """Return the same access by the grants that are in force now."""
        if self._rights is None or self._caller is None:
            return self
        return self._rights.access_of(self._caller, self._needed)

    def allows(self, right: Right, on: SecuredObject) -> bool:
        return self.is_trusted or is_allowed(self._held, right, on)

    # -- tables and views

    def sees(self, table: TableRow) -> bool:
        """Return whether the caller may know that a table exists."""
        return self.is_trusted or is_allowed(self._held, Right.DISCOVER, SecuredObject.of_table(table))

    def admit(self, table: TableRow | None) -> TableRow | None:
        """Return a table that was looked up, None if the caller must not know of it.

        Raises NotPermittedError if the caller knows of the table, but lacks the right that the request needs.
        """
        if table is None or self.is_trusted:
            return table
        if not self.sees(table):
            return None
        self.require(self._needed, table)
        return table

    def require(self, right: Right, table: TableRow) -> None:
        """Raise NotPermittedError unless the caller has a right on a table that the caller may know of."""
        if not self.allows(right, SecuredObject.of_table(table)):
            raise self.refused(f"{right} {table.full_name}")

    def require_create(self, name: TableName, holder: TableRow | None = None) -> None:
        """Raise NotPermittedError unless the caller may give a table or a view this name.

        The error is the same if `holder`, which has the name, stays hidden from the caller.
        """
        is_hidden = holder is not None and not self.sees(holder)
        if is_hidden or not self.allows(Right.CREATE, SecuredObject.of_namespace(name.namespace)):
            raise self.refused(f"create {name}")

    # -- namespaces

    def sees_namespace(self, namespace: str) -> bool:
        """Return whether the caller may know that a namespace exists: by a right on it, or on something in it."""
        if self.is_trusted or is_allowed(self._held, Right.DISCOVER, SecuredObject.of_namespace(namespace)):
            return True
        return name_key(namespace) in self._around_granted()

    def _around_granted(self) -> frozenset[str]:
        """The namespaces around those, and around the tables, on which the caller was granted something."""
        if self._namespaces is None:
            assert self._rights is not None
            assert self._caller is not None
            keys = {key for kind, key, _ in self._held if kind == "namespace"}
            if any(kind == "table" for kind, _, _ in self._held):
                keys.update(map(name_key, self._rights.namespaces_of_tables(self._caller)))
            self._namespaces = frozenset(outer for key in keys for outer in around(key))
        return self._namespaces

    def require_object(self, right: Right, on: SecuredObject, shown: str) -> None:
        """Raise NotPermittedError unless the caller has a right on an object; `shown` is how the error names it."""
        if not self.allows(right, on):
            raise self.refused(f"{right} {shown}")

    def refused(self, deed: str) -> NotPermittedError:
        """Return the error for something that the caller may not do."""
        who = self._caller.name if self._caller else "the caller"
        return NotPermittedError(f"not permitted: {who} may not {deed}")


TRUSTED = Access()
_current: ContextVar[Access] = ContextVar("deltalakedb_access", default=TRUSTED)


def current_access() -> Access:
    """What the caller may do for whom this thread or task works; everything outside of `dl serve`."""
    return _current.get()


@contextmanager
def acting_with(access: Access) -> Iterator[None]:
    """Do what follows, in this thread or task, with an access."""
    before = _current.set(access)
    try:
        yield
    finally:
        _current.reset(before)
