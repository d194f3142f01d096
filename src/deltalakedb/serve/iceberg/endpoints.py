"""The endpoints of the protocol: their methods and paths, what answers them, and which one a request means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

from deltalakedb.rights import Right
from deltalakedb.serve.iceberg.call import Call, Reply
from deltalakedb.serve.iceberg.errors import Kind, Refusal, bad_request

_PREFIX = "{prefix}"
ROOT = f"/v1/{_PREFIX}"
NAMESPACES = f"{ROOT}/namespaces"
NAMESPACE = f"{NAMESPACES}/{{namespace}}"
TABLE = f"{NAMESPACE}/tables/{{table}}"
VIEW = f"{NAMESPACE}/views/{{view}}"
_FIRST_SEGMENTS = frozenset({"namespaces", "tables", "views", "transactions"})
"""What a path without a prefix begins with."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One operation; `path` as the protocol's specification has it, which is also how clients are told about it."""

    method: str
    path: str
    answer: Callable[[Call], Reply]
    kind: Kind = "other"
    """What a 404 means, unless the answer says it."""
    right: Right | None = field(kw_only=True)
    """The right that a table or view needs which the request names; None: it names none. What else a request does, to
    namespaces and new tables, is checked where it is done."""
    changes: bool = False
    """Whether it changes the catalog: then a repeat with the same idempotency key is answered, not run again."""
    is_commit: bool = False
    """Whether its commit carries the client token, by which a repeat finds the first outcome in SQL."""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class Match:
    """The endpoint that a request means, the values in its path, and the prefix that it used."""

    endpoint: Endpoint
    values: Mapping[str, str]
    prefix: str


class Routes:
    """Finds endpoints by their path, which is taken apart before it is decoded: names may have slashes."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._templates = [(_segments_of(endpoint.path), endpoint) for endpoint in endpoints]

    def find(self, method: str, raw_path: bytes) -> Match:
        """Return what a request means; `raw_path` begins with `/v1`."""
        segments = [_decode(segment) for segment in raw_path.lstrip(b"/").split(b"/")]
        prefix = ""
        if len(segments) > 2 and segments[0] == "v1" and segments[1] not in _FIRST_SEGMENTS:
            prefix = segments[1]
        inner = [segments[0], *segments[2:]] if prefix else segments
        found = [
            Match(endpoint, values, prefix)
            for template, endpoint in self._templates
            if (values := _match(template, segments if _PREFIX not in endpoint.path else inner)) is not None
        ]
        allowed = [match for match in found if match.endpoint.method == method]
        if allowed:
            return allowed[0]
        if found:
            raise Refusal(405, "MethodNotAllowedException", f"{method} is not a method of this path")
        raise Refusal(404, "NoSuchEndpointException", "the catalog has no endpoint at this path")


def _segments_of(path: str) -> list[str]:
    return [segment for segment in path.strip("/").split("/") if segment != _PREFIX]


def _decode(segment: bytes) -> str:
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise bad_request("the path is not UTF-8") from None


def _match(template: Sequence[str], segments: Sequence[str]) -> dict[str, str] | None:
    """Return the values that stand for the template's variables; None if the path is another one."""
    if len(template) != len(segments):
        return None
    values = {}
    for expected, segment in zip(template, segments, strict=True):
        if expected.startswith("{"):
            values[expected.strip("{}")] = segment
        elif expected != segment:
            return None
    return values
