"""Turns what a call gave and what it left behind into plain facts: texts, numbers, lists and mappings."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pa_dataset
import pyarrow.fs as pa_fs

MEASURED = re.compile(r"time|Time|duration|size|Size|bytes|Bytes|engineInfo|clientVersion|txnId")
"""A value under such a name is measured or random: only its kind is compared."""
UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
PLACE = re.compile(r"file:///\S*?/lake/space/t(?=[/\"'])")
"""Where a table was when it was made: it was copied since."""
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
NUMBER = re.compile(r"\bpart-\d{5}-")
BACKTRACE = re.compile(r"\n +\d+: .*", re.DOTALL)
MILLISECONDS = re.compile(r"(?<!\d)1[5-9]\d{11}(?!\d)")
OUR_COMMIT_INFO = {
    "clientVersion",
    "engineInfo",
    "txnId",
    "isolationLevel",
    "isBlindAppend",
    "deltalakedb",
    "inCommitTimestamp",
    "tags",
}
"""Keys of commit info that are ours alone: more than `deltalake` writes is no difference."""
FILE_COLUMNS = {"size_bytes", "modification_time", "_commit_timestamp", "filepath"}


@dataclasses.dataclass(frozen=True, slots=True)
class Mask:
    """Replaces what is a library's own: its name and the addresses of its table."""

    addresses: tuple[str, ...]

    def text(self, value: str) -> str:
        for address in self.addresses:
            value = value.replace(address, "<table>")
        value = PLACE.sub("<table>", value + '"')[:-1]
        value = value.replace("deltalakedb", "deltalake").replace("delta-rs", "deltalake")
        value = NUMBER.sub("part-", ADDRESS.sub("", UUID.sub("<uuid>", BACKTRACE.sub("", value))))
        return MILLISECONDS.sub("<ms>", value)


def canonical(value: Any) -> str:
    """A text by which facts are sorted."""
    return json.dumps(value, sort_keys=True, default=str)


def plain(value: Any, mask: Mask, *, ordered: bool = False) -> Any:
    """The value without classes that are a library's own."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return mask.text(value)
    if isinstance(value, Enum):
        return str(value)
    if isinstance(value, Path | date | time | timedelta | Decimal):
        return mask.text(str(value))
    if isinstance(value, Mapping):
        if "operationParameters" in value:
            value = {key: one for key, one in value.items() if key not in OUR_COMMIT_INFO}
        return {str(key): _measured(str(key), one, mask, ordered) for key, one in value.items()}
    if hasattr(value, "_asdict"):
        shown = {key: sorted(one) if isinstance(one, list) else one for key, one in value._asdict().items()}
        return {"kind": type(value).__name__, **plain(shown, mask)}
    if isinstance(value, list | tuple):
        return [plain(one, mask, ordered=ordered) for one in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(one, mask) for one in value), key=canonical)
    return _object(value, mask, ordered)


def _measured(key: str, value: Any, mask: Mask, ordered: bool) -> Any:
    if key in ("filesAdded", "filesRemoved") and isinstance(value, str):
        return json.loads(value)["totalFiles"]
    if MEASURED.search(key) and isinstance(value, int | float | str) and not isinstance(value, bool):
        return f"<{type(value).__name__}>"
    return plain(value, mask, ordered=ordered)


def _object(value: Any, mask: Mask, ordered: bool) -> Any:
    kind = type(value).__name__
    if hasattr(value, "load_as_version"):
        return {"kind": kind, "version": value.version(), "uri": mask.text(value.table_uri)}
    if isinstance(value, pa.Table):
        return table_facts(value, mask, ordered=ordered)
    if isinstance(value, pa_dataset.Dataset):
        return {"kind": "Dataset", **table_facts(value.to_table(), mask, ordered=ordered)}
    if kind == "DataFrame":
        return {"kind": kind, **table_facts(pa.Table.from_pandas(value, preserve_index=False), mask, ordered=ordered)}
    if hasattr(value, "__arrow_c_stream__"):
        return table_facts(pa.RecordBatchReader.from_stream(value).read_all(), mask, ordered=ordered)
    if hasattr(value, "to_json") and not isinstance(value, type):
        return {"kind": kind, "json": json.loads(value.to_json()), "repr": mask.text(repr(value))}
    if kind == "DataType" and not isinstance(value, pa.DataType):
        return str(pa.field(value).type)
    if isinstance(value, pa.Schema | pa.DataType | pa.Field) or hasattr(value, "__arrow_c_schema__"):
        return schema_facts(value)
    if kind == "Metadata":
        names = ("id", "name", "description", "partition_columns", "created_time", "configuration")
        return {"kind": kind, **plain({name: getattr(value, name) for name in names}, mask)}
    if isinstance(value, pa_fs.FileInfo):
        return {"path": mask.text(value.path), "type": str(value.type), "size": value.size if value.is_file else None}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"kind": kind, **plain({one: getattr(value, one) for one in vars(value)}, mask)}
    if isinstance(value, BaseException):
        return [kind, mask.text(str(value))]
    if isinstance(value, bytes):
        return repr(value)
    if kind == "TableFeatures":
        return str(value)
    if hasattr(value, "__next__"):
        return [plain(one, mask) for one in value]
    return kind


def schema_facts(value: Any) -> Any:
    if isinstance(value, pa.DataType):
        return str(value)
    if isinstance(value, pa.Field):
        return _field(value)
    if isinstance(value, pa.Schema):
        return [_field(field) for field in value]
    try:
        return schema_facts(pa.schema(value))
    except (TypeError, ValueError, pa.ArrowInvalid):
        return schema_facts(pa.field(value))


def _field(field: pa.Field) -> list[Any]:
    metadata = {key.decode(): one.decode() for key, one in (field.metadata or {}).items() if key != b"PARQUET:field_id"}
    return [field.name, str(field.type), field.nullable, metadata]


def table_facts(table: pa.Table, mask: Mask, *, ordered: bool = False) -> dict[str, Any]:
    """Columns with their types, and rows, sorted unless their order is promised."""
    listed = [_row(row, mask) for row in table.to_pylist()]
    return {
        "columns": [[field.name, str(field.type), field.nullable] for field in table.schema],
        "rows": listed if ordered else sorted(listed, key=canonical),
    }


def _row(value: Any, mask: Mask) -> Any:
    """A row; what get_add_actions tells of files is measured, columns of users are not."""
    if isinstance(value, dict):
        return {
            key: f"<{type(one).__name__}>" if key in FILE_COLUMNS else _row(one, mask) for key, one in value.items()
        }
    if isinstance(value, list):
        return [_row(one, mask) for one in value]
    return plain(value, mask)


# ---- what a call left behind


def commit_facts(folder: Path, after: int, mask: Mask) -> dict[str, Any]:
    """What the new commits in `_delta_log` say, by class of facts; of protocols, how many: a catalog's are fenced."""
    facts: dict[str, list[Any]] = {"protocol": [], "metadata": [], "statistics": [], "files": []}
    for path in sorted((folder / "_delta_log").glob("*.json")):
        if not path.stem.isdigit() or int(path.stem) <= after:
            continue
        actions: dict[str, list[Any]] = {}
        for text in path.read_text(encoding="utf-8").splitlines():
            for kind, action in json.loads(text).items():
                actions.setdefault(kind, []).append(action)
        facts["protocol"].append(len(actions.get("protocol", [])))
        facts["metadata"].append([_metadata(one) for one in actions.get("metaData", [])])
        adds = actions.get("add", [])
        facts["statistics"].append(sorted((_statistics(one) for one in adds), key=canonical))
        facts["files"].append(
            {
                "add": sorted(([_shape(one["path"]), _values(one), one["dataChange"]] for one in adds), key=canonical),
                "remove": sorted(
                    ([_values(one), one["dataChange"]] for one in actions.get("remove", [])), key=canonical
                ),
                "cdc": sorted(([_shape(one["path"]), _values(one)] for one in actions.get("cdc", [])), key=canonical),
                "txn": [[one["appId"], one["version"]] for one in actions.get("txn", [])],
            }
        )
    return {kind: plain(value, mask) for kind, value in facts.items()}


def _metadata(action: dict[str, Any]) -> Any:
    return {
        "schema": json.loads(action["schemaString"]),
        "partition columns": action["partitionColumns"],
        "configuration": action.get("configuration", {}),
        "name": action.get("name"),
        "description": action.get("description"),
    }


def _statistics(add: dict[str, Any]) -> Any:
    try:
        found = json.loads(add.get("stats") or "null")
    except ValueError:
        return add["stats"]
    if isinstance(found, dict):
        found.pop("tightBounds", None)
    return found


def _values(action: dict[str, Any]) -> Any:
    return sorted((action.get("partitionValues") or {}).items())


def _shape(path: str) -> str:
    """The folders of a path: names of files are random."""
    return path.rpartition("/")[0]


def folder_facts(folder: Path) -> dict[str, Any]:
    """How many data files lie in each folder, on disk."""
    counts: dict[str, int] = {}
    for path in folder.rglob("*.parquet"):
        place = str(path.parent.relative_to(folder))
        if place != "_delta_log":
            counts[place] = counts.get(place, 0) + 1
    return dict(sorted(counts.items()))


def history_facts(entry: Mapping[str, Any], mask: Mask) -> dict[str, Any]:
    """An entry of the history without what every writer has of its own."""
    shown = {key: value for key, value in entry.items() if key != "operationMetrics" and value is not None}
    parameters = {key: _parameter(value) for key, value in (shown.get("operationParameters") or {}).items()}
    result: dict[str, Any] = plain(shown | {"operationParameters": parameters}, mask)
    return result


def _parameter(value: Any) -> Any:
    """A parameter of an operation; JSON within is compared as such, without nulls and times."""
    if isinstance(value, str):
        if not value.startswith(("{", "[")):
            return value.rstrip("/")
        return _parameter(json.loads(value))
    if isinstance(value, dict):
        kept = {key: _parameter(one) for key, one in value.items() if one is not None and key != "createdTime"}
        return {key: sorted(one) if key.endswith("Features") else one for key, one in kept.items()}
    return [_parameter(one) for one in value] if isinstance(value, list) else value
