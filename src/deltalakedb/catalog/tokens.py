"""The methods of `Catalog` for named tokens, with which clients use `dl serve`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from deltalakedb.exceptions import ConfigError, TokenNameError
from deltalakedb.store import Store
from deltalakedb.store.audit import write_audit
from deltalakedb.store.connection import Connection
from deltalakedb.store.tokens import NamedToken, find_token, insert_token, list_tokens, revoke_token

LONGEST_NAME = 255


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just created. `secret` is what clients send; it is shown here and nowhere else."""

    token: NamedToken
    secret: str = field(repr=False)


class CatalogTokens(ABC):
    """Creates, lists and revokes named tokens."""

    store: Store
    origin: str

    @property
    @abstractmethod
    def actor(self) -> str: ...

    def create_token(
        self,
        name: str,
        actor: str | None = None,
        groups: Iterable[str] = (),
        expires: timedelta | None = None,
    ) -> NewToken:
        """Create a token for clients of `dl serve`; what they do is done by `actor`, by default the token's name.

        `expires`: how long it is valid; without it, until it is revoked.
        """
        check_actor_name(name, "the name of a token")
        actor = check_actor_name(name if actor is None else actor, "an actor")
        group_names = [check_actor_name(group, "a group") for group in groups]
        if expires is not None and expires <= timedelta(0):
            raise ConfigError("a token must be valid for some time: `expires` is not positive")
        lifetime_ms = None if expires is None else round(expires.total_seconds() * 1000)
        with self.store.write() as conn:
            existing = find_token(conn, name)
            if existing is not None:
                raise TokenNameError(
                    f"there is a token {name!r} already, with the id {existing.token_id}: revoke it first "
                    "(`dl token revoke`), or choose another name"
                )
            token, secret = insert_token(
                conn, name, actor=actor, groups=group_names, lifetime_ms=lifetime_ms, created_by=self.actor
            )
            details = {"groups": list(token.groups), "for": actor, "expires_ms": token.expires_ms}
            self._audit_token(conn, "create token", token, details)
        return NewToken(token, secret)

    def tokens(self) -> list[NamedToken]:
        """Return all named tokens, the newest first; expired and revoked ones too."""
        with self.store.read(single=True) as conn:
            return list_tokens(conn)

    def revoke_token(self, name: str) -> NamedToken:
        """Revoke a token for good. Endpoints refuse it two seconds later at the latest."""
        with self.store.write() as conn:
            token = find_token(conn, name)
            if token is None or not revoke_token(conn, token):
                raise TokenNameError(f"there is no token {name!r} that could be revoked; see `dl token list`")
            self._audit_token(conn, "revoke token", token, {})
        return token

    def _audit_token(self, conn: Connection, action: str, token: NamedToken, details: Mapping[str, object]) -> None:
        # The keys avoid the word "token": values under such keys are masked.
        write_audit(
            conn,
            action=action,
            at_ms=conn.now_ms(),
            actor=self.actor,
            origin=self.origin,
            details={"name": token.name, "public_part": token.token_id, **details},
        )


def check_actor_name(name: str, what: str) -> str:
    """The name of a user, a group or a token, if it can be one; ConfigError otherwise."""
    if not name or len(name) > LONGEST_NAME or not name.isprintable() or name != name.strip():
        raise ConfigError(
            f"{what} has 1 to {LONGEST_NAME} printable characters and no space at its ends; {name[:80]!r} is none"
        )
    return name
