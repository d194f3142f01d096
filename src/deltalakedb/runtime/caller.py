"""Who is behind a request, proven by the door it came through; known wherever the request's work is done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """A user and the user's groups, and where the request came from."""

    name: str
    groups: frozenset[str] = frozenset()
    proof: str = "token"
    """What proved the name: `token`, `oidc` or `certificate`.

    `endpoint` is the endpoint's own token, whose owner administers the catalog; `none`: the endpoint asks for no token.
    """
    address: str | None = None
    user_agent: str | None = None
    request_id: str | None = None

    def request_fields(self) -> dict[str, str]:
        """What commits and the audit tell of the request, beside the name."""
        fields = {
            "id": self.request_id,
            "proof": self.proof,
            "address": self.address,
            "userAgent": self.user_agent,
        }
        return {key: value for key, value in fields.items() if value is not None}


_current: ContextVar[Caller | None] = ContextVar("deltalakedb_caller", default=None)


def current_caller() -> Caller | None:
    """The caller of the request that is being answered; None outside of `dl serve`."""
    return _current.get()


@contextmanager
def acting_for(caller: Caller | None) -> Iterator[None]:
    """Do what follows, in this thread or task, for a caller."""
    before = _current.set(caller)
    try:
        yield
    finally:
        _current.reset(before)
