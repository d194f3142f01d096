"""Owns commits: parses and renders their lines, and checks that the actions form a valid commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import orjson

from deltalakedb.exceptions import MalformedLogError, redact
from deltalakedb.log.protocol.actions import (
    Action,
    AddCDCFile,
    AddFile,
    AppTransaction,
    CheckpointMetadata,
    CommitInfo,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    RemoveFile,
    UnknownAction,
)
from deltalakedb.log.protocol.codec import decode_at, escape_surrogates, expect, parse_object, render_object, to_json
from deltalakedb.log.protocol.fence import fence
from deltalakedb.log.protocol.fields import ADD, SPEC_OF, SPECS, Kind
from deltalakedb.log.protocol.paths import check_path


@dataclass(frozen=True, slots=True)
class Commit:
    """The actions that take a table from version - 1 to version."""

    version: int
    timestamp_ms: int
    actions: tuple[Action, ...]
    size_bytes: int | None = None

    @property
    def commit_info(self) -> CommitInfo | None:
        return next((action for action in self.actions if isinstance(action, CommitInfo)), None)


def parse_action(line: str | bytes, *, where: str) -> Action:
    """Parses one line of a commit; `where` (table, version, line) is used in error messages."""
    try:
        text = line if isinstance(line, str) else str(line, "utf-8")
        start = expect(text, 0, "{")
        kind, _, end = decode_at(text, start)
        if not isinstance(kind, str):
            raise ValueError("not a JSON object")
        value, begin, end = decode_at(text, expect(text, end, ":"))
        if text[expect(text, end, "}") :].strip():
            raise ValueError("something follows the JSON object")
        return _to_action(kind, value, text, begin, end)
    except UnicodeDecodeError as error:
        raise MalformedLogError(f"{redact(where)}: not UTF-8 at byte {error.start}") from error
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise MalformedLogError(f"{redact(where)}: not an action: {reason}") from error


def _to_action(kind: str, value: Any, text: str, begin: int, end: int) -> Action:
    spec = SPECS.get(kind)
    if spec is None:
        source = escape_surrogates(text[begin:end])
        if kind not in ("commitInfo", "checkpointMetadata"):
            return UnknownAction(kind, source)
        if not isinstance(value, dict):
            raise ValueError(f"{kind} is not an object")
        return CommitInfo(source) if kind == "commitInfo" else CheckpointMetadata(source)
    if not isinstance(value, dict):
        raise ValueError(f"{kind} is not an object")
    try:
        action: Action = parse_object(spec, value, text, begin)
    except ValueError as error:
        raise ValueError(f"{kind}: {error}") from error
    return action


def render_action(action: Action) -> str:
    """Renders one line of a commit, without the line break. The result depends only on the action."""
    if isinstance(action, CommitInfo):
        return f'{{"commitInfo":{action.text}}}'
    if isinstance(action, CheckpointMetadata):
        return f'{{"checkpointMetadata":{action.text}}}'
    if isinstance(action, UnknownAction):
        return f"{{{to_json(action.kind)}:{action.text}}}"
    spec = SPEC_OF[type(action)]
    return f'{{"{spec.name}":{render_object(spec, action)}}}'


_TEXTS: Final = (str, type(None))
_ADD: Final = b'{"add":{"path":%b,"partitionValues":%b,"size":%d,"modificationTime":%d,"dataChange":%b%b%b'
_REST: Final = ADD.fields[1 + [field.name for field in ADD.fields].index("stats") :]
_get_rest: Final = attrgetter(*(field.attribute for field in _REST))
_NO_REST: Final = (None,) * len(_REST)
_PLACEHOLDERS: Final = {Kind.LONG: "%d", Kind.TEXT: "%b"}
_TEMPLATES: Final = [  # None: takes the slower path
    f',"{field.name}":{_PLACEHOLDERS[field.kind]}'.encode() if field.kind in _PLACEHOLDERS else None for field in _REST
]


def render_line(action: Action) -> bytes:
    """Renders one line as bytes, equal to `render_action`. Adds can be many, so plain ones take a faster path."""
    line = _render_add(action) if type(action) is AddFile else None
    return render_action(action).encode("utf-8", "surrogatepass") if line is None else line


def _render_add(add: AddFile) -> bytes | None:
    """Renders an add that has only the common fields; returns None for any other."""
    values = add.partition_values
    if add.extra or type(values) is not dict:
        return None
    if not (type(add.size) is type(add.modification_time) is int and type(add.data_change) is bool):
        return None
    if values and any(type(text) not in _TEXTS for text in values.values()):
        return None
    end = b"}}"
    try:
        rest = _get_rest(add)
        if rest != _NO_REST:
            end = b""
            for template, value in zip(_TEMPLATES, rest):  # noqa: B905 a check of each call costs more than the loop
                if value is not None:
                    if template is None:
                        return None
                    end += template % (orjson.dumps(value) if type(value) is str else value)
            end += b"}}"
        return _ADD % (
            orjson.dumps(add.path),
            orjson.dumps(values) if values else b"{}",
            add.size,
            add.modification_time,
            b"true" if add.data_change else b"false",
            b"" if add.stats is None else b',"stats":' + orjson.dumps(add.stats),
            end,
        )
    except TypeError:  # lone surrogates, and values of another type than declared
        return None


def iter_actions(lines: Iterable[bytes], *, table: str, version: int) -> Iterator[Action]:
    """Yields the actions of one commit, each checked against those before it; skips blank lines."""
    checker = CommitChecker(table, version)
    for number, line in enumerate(lines, start=1):
        if line.isspace() or not line:
            continue
        action = parse_action(line, where=f"table {table}, version {version}, line {number}")
        checker.see(action)
        yield action


_MANY: Final = 100


def _are_plain(adds: Sequence[AddFile]) -> bool:
    """Whether all adds are whole files with distinct paths, and no path needs a closer check."""
    if any(add.deletion_vector for add in adds):
        return False
    paths = [add.path for add in adds]
    together = "\n".join(paths)
    return ".." not in together and "%" not in together and len(set(paths)) == len(paths)


class CommitChecker:
    """Rejects actions that contradict each other (PROTOCOL.md, "Action Reconciliation") and paths that leave the
    table."""

    def __init__(self, table: str, version: int) -> None:
        self._where = f"table {table}, version {version}"  # redacted only in errors: redacting costs more than a check
        self._single: set[type] = set()
        self._app_ids: set[str] = set()
        self._domains: set[str] = set()
        self._added: set[FileKey] = set()
        self._removed: set[FileKey] = set()

    def see_all(self, actions: Sequence[Action]) -> None:
        """Checks all actions with `see`; many plain adds are checked together."""
        adds = [action for action in actions if type(action) is AddFile]
        if len(adds) < _MANY or self._added or self._removed or not _are_plain(adds):
            for action in actions:
                self.see(action)
            return
        others = [action for action in actions if type(action) is not AddFile]
        if any(isinstance(action, RemoveFile) for action in others):
            self._added = {add.key for add in adds}
        for action in others:
            self.see(action)

    def see(self, action: Action) -> None:
        match action:
            case AddFile():
                check_path(action.path, where=self._where)
                key = action.key
                if key in self._added:
                    self._refuse(f"adds the file {action.path} twice")
                if key in self._removed:
                    self._refuse(f"adds and removes the file {action.path}")
                self._added.add(key)
            case RemoveFile():
                check_path(action.path, where=self._where)
                key = action.key
                if key in self._added:
                    self._refuse(f"adds and removes the file {action.path}")
                self._removed.add(key)
            case AddCDCFile():
                check_path(action.path, where=self._where)
            case Metadata() | Protocol():
                if type(action) in self._single:
                    self._refuse(f"holds more than one {SPEC_OF[type(action)].name} action")
                self._single.add(type(action))
            case AppTransaction():
                if action.app_id in self._app_ids:
                    self._refuse(f"holds more than one txn action for the application {action.app_id}")
                self._app_ids.add(action.app_id)
            case DomainMetadata():
                if action.domain in self._domains:
                    self._refuse(f"holds more than one domainMetadata action for the domain {action.domain}")
                self._domains.add(action.domain)
            case _:
                pass

    def _refuse(self, what: str) -> None:
        raise MalformedLogError(redact(f"{self._where}: the commit {what[:1000]}"))


def render_commit(actions: Iterable[Action], *, fenced: bool) -> bytes:
    """One line per action, each ended by a line break; `fenced` adds our table feature to the protocol action."""
    lines = []
    for action in actions:
        rendered = fence(action) if fenced and isinstance(action, Protocol) else action
        lines.append(render_line(rendered))
    lines.append(b"")
    return b"\n".join(lines)
