"""After every kind of commit the mirror is read by readers that know nothing of us: the newest version, then all."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.fixtures.readers import NAMES, Reader, Reading, Refused, Spark, sort_rows
from tests.interop.conftest import EVERY_VERSION, PHASES, History

pytestmark = pytest.mark.spark

REFUSED: dict[str, dict[str, int]] = {
    "deletion_vectors": {"pyarrow": 0},
    "column_mapping": {"polars": 0},
    "mapped_partitions": {"polars": 0},
    "mapping_turned_on": {"polars": 2},
    "type_widening": {"deltalake": 0, "pyarrow": 0, "polars": 0},
    "v2_checkpoint": {"pyarrow": 0, "polars": 0},
    "vacuum_protocol_check": {"deltalake": 0, "pyarrow": 0, "polars": 0},
}
"""Tables that a reader is known not to read, whoever wrote them, and from which version on."""

MISREAD: dict[str, dict[str, int]] = {
    "column_mapping": {"pyarrow": 1},
    "mapping_turned_on": {"pyarrow": 3},
    "mapped_partitions": {"pyarrow": 1, "duckdb": 1},
}
"""Tables that a reader opens and reads wrong, whoever wrote them (tried with Spark's). With reader version 2, PyArrow's
datasets of `deltalake` 1.6.6 look for logical names in the files, so that mapped columns are null; its scan is right.
DuckDB 1.5.5 takes mapped partition columns for null."""


@pytest.mark.parametrize("reader", NAMES)
def test_each_commit_is_seen_when_it_is_the_newest(history: History, reader: str) -> None:
    asked = [version for version, seen in enumerate(history.opened) if reader in seen]
    assert asked == ([*range(history.head + 1)] if EVERY_VERSION or reader != "spark" else sorted({0, history.head}))
    for version in asked:
        seen = history.opened[version][reader]
        if is_refused(reader, history, version):
            assert isinstance(seen, Refused), f"{reader} reads version {version}: it was known not to"
            continue
        assert isinstance(seen, Reading), f"version {version}: {seen}"
        assert seen.version in (version, None)
        assert_same(reader, history, version, seen.rows)


@pytest.mark.parametrize("reader", NAMES)
@pytest.mark.parametrize("phase", PHASES)
def test_every_version_can_be_travelled_to(
    history: History, readers: Mapping[str, Reader], phase: str, reader: str
) -> None:
    asked, path = readers[reader], history.logs[phase]
    there = [version for version in range(history.head + 2) if can_travel(reader, history, phase, version)]
    if isinstance(asked, Spark):
        found = asked.at_versions(path, chosen(there, history, phase))
    else:
        found = {version: asked.at_version(path, version) for version in there}
    for version in range(history.head + 2):
        if version in found:
            assert_same(reader, history, version, found[version])
        elif version not in there:
            try:
                rows = asked.at_version(path, version)
            except Refused:
                continue
            assert reader == "sail", f"{reader} reads version {version}: it was known not to"
            assert_same(reader, history, version, rows)
    if not is_refused(reader, history, history.head):
        assert_same(reader, history, history.head, asked.latest(path).rows)


def chosen(there: Sequence[int], history: History, phase: str) -> list[int]:
    """The versions for Spark; the newest is asked for in any case, as the latest."""
    special = {there[0]} | ({history.checkpoint} & set(there) if phase != "commits" else set())
    return list(there) if EVERY_VERSION else sorted(special)


def is_refused(reader: str, history: History, version: int) -> bool:
    return version >= REFUSED.get(history.kind, {}).get(reader, version + 1)


def can_travel(reader: str, history: History, phase: str, version: int) -> bool:
    # Sail 0.7.2 mostly does not replay the commits before the checkpoint that _last_checkpoint names, but for the first
    # two; the same with logs of deltalake and Spark.
    if reader == "sail" and phase == "checkpointed" and 1 < version < history.checkpoint:
        return False
    return history.first_versions[phase] <= version <= history.head and not is_refused(reader, history, version)


def assert_same(reader: str, history: History, version: int, rows: pa.Table) -> None:
    wanted = sort_rows(history.rows[version])
    found = sort_rows(rows, wanted.schema)
    assert found.schema == wanted.schema
    if version >= MISREAD.get(history.kind, {}).get(reader, version + 1):
        assert found.to_pylist() != wanted.to_pylist(), f"{reader} has learned to read it: shorten MISREAD"
        return
    if reader == "chdb":  # ClickHouse has no null among its lists, maps and structs
        filled = [_filled(row, wanted.schema) for row in wanted.to_pylist()]
        wanted = sort_rows(pa.Table.from_pylist(filled, wanted.schema))
    assert found.to_pylist() == wanted.to_pylist()


def _filled(row: Mapping[str, Any] | None, fields: Any) -> dict[str, Any]:
    return {field.name: _filled_value((row or {}).get(field.name), field.type) for field in fields}


def _filled_value(value: Any, kind: Any) -> Any:
    if pa.types.is_struct(kind):
        return _filled(value, kind)
    return [] if value is None and (pa.types.is_list(kind) or pa.types.is_map(kind)) else value
