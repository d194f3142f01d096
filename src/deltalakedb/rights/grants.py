"""Rights, grants and objects as values, and the one function that decides whether a right is held."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from deltalakedb.exceptions import ConfigError
from deltalakedb.runtime.caller import Caller
from deltalakedb.store.grants import Grant, GranteeKind, ObjectKey, ObjectKind
from deltalakedb.store.names import join_namespace, name_key, split_name
from deltalakedb.store.registry import TableRow

MAX_GRANTEE_LENGTH = 255


class Right(StrEnum):
    """What a grant allows; each of `read`, `write` and `manage` allows what the ones before it do."""

    DISCOVER = "discover"
    """To see that the object exists, and its name."""
    READ = "read"
    """To read rows, the schema and the history of a table; the definition of a view; properties of a namespace."""
    WRITE = "write"
    """To commit versions of a table or a view."""
    CREATE = "create"
    """To create tables, views and namespaces in a namespace or the catalog, which it lets see; not to see tables."""
    MANAGE = "manage"
    """Everything: also to rename, drop and undrop, to change namespaces, to grant and revoke."""

    @property
    def included(self) -> frozenset[Right]:
        """The rights that come with it."""
        return _INCLUDED[self]

    @classmethod
    def parse(cls, text: str) -> Right:
        try:
            return cls(text.strip().lower())
        except ValueError:
            raise ConfigError(f"{text[:40]!r} is no right: a right is one of {', '.join(cls)}") from None


_INCLUDED: Mapping[Right, frozenset[Right]] = {
    Right.DISCOVER: frozenset({Right.DISCOVER}),
    Right.READ: frozenset({Right.DISCOVER, Right.READ}),
    Right.WRITE: frozenset({Right.DISCOVER, Right.READ, Right.WRITE}),
    Right.CREATE: frozenset({Right.CREATE}),
    Right.MANAGE: frozenset(Right),
}


@dataclass(frozen=True, slots=True)
class SecuredObject:
    """What rights are granted on: the catalog, a namespace, or a table or view, with the namespace that it is in."""

    kind: ObjectKind
    namespace_key: str = ""
    table_id: int = 0
    newer: frozenset[str] = frozenset()
    """The namespaces around a dropped table that were created after the drop: rights on them do not hold on it."""

    @classmethod
    def of_namespace(cls, namespace: str) -> SecuredObject:
        return cls("namespace", name_key(namespace))

    @classmethod
    def of_table(cls, table: TableRow) -> SecuredObject:
        """A table or view; it inherits from the namespace that it is in now."""
        return cls("table", name_key(table.namespace), table.table_id)

    @classmethod
    def of_dropped(cls, table: TableRow, dropped_at_ms: int, created_ms: Mapping[str, int]) -> SecuredObject:
        """A dropped table under its last name; `created_ms` are the namespaces that exist, and since when.

        Whoever creates a namespace under the name of one that is gone has no right on what was dropped in that one.
        """
        on = cls.of_table(table)
        newer = {key for key in around(on.namespace_key) if created_ms.get(key, 0) > dropped_at_ms}
        return replace(on, newer=frozenset(newer))

    @property
    def key(self) -> ObjectKey:
        """Where its own grants are: those of a table do not depend on the namespace that it is in."""
        return (self.kind, "", self.table_id) if self.kind == "table" else (self.kind, self.namespace_key, 0)

    def ancestry(self) -> Iterator[ObjectKey]:
        """Where the grants in force on it are: its own, those of the namespaces around it, those of the catalog."""
        if self.kind == "table":
            yield self.key
        if self.kind != "catalog":
            for key in around(self.namespace_key):
                if key not in self.newer:
                    yield ("namespace", key, 0)
        yield CATALOG.key


CATALOG = SecuredObject("catalog")


@dataclass(frozen=True, slots=True, order=True)
class Grantee:
    """A user or a group, as `user:alice` or `group:analysts`; names are compared as they are written."""

    kind: GranteeKind
    name: str

    @classmethod
    def parse(cls, text: str) -> Grantee:
        kind, _, name = text.partition(":")
        if kind not in ("user", "group") or not name.strip() or not name.isprintable():
            raise ConfigError(f"{text[:80]!r} is no grantee: write user:NAME or group:NAME")
        if len(name) > MAX_GRANTEE_LENGTH:
            raise ConfigError(f"the name of a {kind} has at most {MAX_GRANTEE_LENGTH} characters, not {len(name)}")
        return cls("user" if kind == "user" else "group", name)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


_NOTHING: frozenset[Right] = frozenset()
HeldRights = Mapping[ObjectKey, frozenset[Right]]
"""The rights that a caller's grants give, by object, without inherited ones."""


def held_by(caller: Caller, grants: Iterable[Grant]) -> HeldRights:
    """Return the rights that the grants of a caller, and of the caller's groups, give on each object."""
    held: dict[ObjectKey, frozenset[Right]] = {}
    for grant in grants:
        is_users = grant.grantee_kind == "user" and grant.grantee == caller.name
        if is_users or (grant.grantee_kind == "group" and grant.grantee in caller.groups):
            held[grant.on] = held.get(grant.on, _NOTHING) | Right(grant.granted_right).included
    return held


def is_allowed(held: HeldRights, right: Right, on: SecuredObject) -> bool:
    """Decide whether a caller may do something: this is the only place where that is decided.

    Rights on the catalog or a namespace hold for all that is in it. Whoever may create in a namespace may see it.
    """
    for key in on.ancestry():
        rights = held.get(key, _NOTHING)
        if right in rights:
            return True
        if right is Right.DISCOVER and Right.CREATE in rights and on.kind != "table":
            return True
    return False


@lru_cache(maxsize=4096)
def around(namespace_key: str) -> tuple[str, ...]:
    """Return the keys of a namespace and of the namespaces around it, the innermost first."""
    parts = split_name(namespace_key, checks=False)
    return tuple(join_namespace(parts[:count]) for count in range(len(parts), 0, -1))
