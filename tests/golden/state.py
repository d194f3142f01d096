"""A table's state at one version as plain parsed JSON, and a replay of `_delta_log` that shares no code with ours."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

Json = dict[str, Any]
FileKey = tuple[str, str]


@dataclass
class State:
    """What a version amounts to; two readers agree when every part is equal."""

    protocol: Json = field(default_factory=dict)
    metadata: Json = field(default_factory=dict)
    app_transactions: dict[str, Json] = field(default_factory=dict)
    domain_metadata: dict[str, Json] = field(default_factory=dict)
    files: dict[FileKey, Json] = field(default_factory=dict)

    def apply(self, actions: Iterable[Json]) -> "State":
        """Replay one commit, or a checkpoint, onto a copy of this state."""
        after = State(self.protocol, self.metadata, {**self.app_transactions}, {**self.domain_metadata}, {**self.files})
        for action in actions:
            after._apply(action)
        return after

    def _apply(self, action: Json) -> None:
        match action:
            case {"protocol": value}:
                self.protocol = tidy_protocol(value)
            case {"metaData": value}:
                self.metadata = without_nulls(value)
            case {"txn": value}:
                self.app_transactions[value["appId"]] = without_nulls(value)
            case {"domainMetadata": {"domain": domain, "removed": True}}:
                self.domain_metadata.pop(domain, None)
            case {"domainMetadata": value}:
                self.domain_metadata[value["domain"]] = without_nulls(value)
            case {"add": value}:
                self.files[file_key(value)] = tidy_file(value)
            case {"remove": value}:
                self.files.pop(file_key(value), None)


def parse_line(line: str | bytes) -> Json:
    """JSON with its decimals kept exact, so that 1.10 and 1.1000000001 do not look alike."""
    parsed: Json = json.loads(line, parse_float=Decimal)
    return parsed


def commit_lines(table: Path, version: int) -> list[Json]:
    content = (table / "_delta_log" / f"{version:020}.json").read_bytes()
    return [parse_line(line) for line in content.split(b"\n") if line.strip()]


def commit_versions(table: Path) -> list[int]:
    """The versions whose JSON is still there."""
    names = (path.name for path in (table / "_delta_log").iterdir())
    return sorted(int(name[:20]) for name in names if re.fullmatch(r"\d{20}\.json", name))


def states(table: Path) -> dict[int, State]:
    """Every version that the files can still tell, replayed from JSON and, where it is cut off, one checkpoint."""
    versions = commit_versions(table)
    state, told = State(), {}
    if versions[0] > 0:
        state = State().apply(_checkpoint_actions(table, versions[0]))
        told[versions[0]] = state
        versions = versions[1:]
    for version in versions:
        state = state.apply(commit_lines(table, version))
        told[version] = state
    return told


def _checkpoint_actions(table: Path, version: int) -> Iterable[Json]:
    """The rows of a classic checkpoint, maps as dicts."""
    rows = pq.read_table(table / "_delta_log" / f"{version:020}.checkpoint.parquet")
    for row in rows.to_pylist(maps_as_pydicts="strict"):
        yield {kind: value for kind, value in row.items() if value is not None}


def file_key(value: Mapping[str, Any]) -> FileKey:
    vector = value.get("deletionVector")
    if vector is None:
        return value["path"], ""
    offset = "" if vector.get("offset") is None else f"@{vector['offset']}"
    return value["path"], f"{vector['storageType']}{vector['pathOrInlineDv']}{offset}"


def tidy_file(value: Mapping[str, Any]) -> Json:
    """An add without what a checkpoint may change: nulls, and `dataChange`, which is about the commit alone."""
    tidy = without_nulls(value)
    tidy.pop("dataChange", None)
    for parsed in ("stats_parsed", "partitionValues_parsed"):
        tidy.pop(parsed, None)
    if not tidy.get("tags"):
        tidy.pop("tags", None)
    return tidy


def tidy_protocol(value: Mapping[str, Any]) -> Json:
    tidy = without_nulls(value)
    for features in ("readerFeatures", "writerFeatures"):
        if features in tidy:
            tidy[features] = sorted(tidy[features])
    return tidy


def without_nulls(value: Mapping[str, Any]) -> Json:
    """Drop fields given as null, as deep as structs go; maps keep theirs (a null partition value means something)."""
    tidy: Json = {}
    for name, item in value.items():
        if item is None:
            continue
        tidy[name] = without_nulls(item) if name in ("deletionVector", "format") else item
    return tidy
