"""DeltaTable: the same answers as `deltalake` gives for the same table, from SQL."""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import deltalake
import pyarrow as pa
import pytest

import deltalakedb
from deltalakedb import Catalog, DeltaTable
from deltalakedb.exceptions import (
    CatalogUriError,
    DeltaError,
    PredicateError,
    TableNotFoundError,
    VersionNotFoundError,
)
from tests.golden import by_deltalake

MEMBERS = [
    "version", "table_uri", "schema", "metadata", "protocol", "history", "count", "file_uris", "partitions",
    "get_add_actions", "transaction_version", "load_as_version", "update_incremental",
]  # fmt: skip


@pytest.fixture
def catalog(target: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")
    with deltalakedb.connect(target) as opened:
        yield opened


@pytest.fixture
def orders(tables_by_deltalake: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(tables_by_deltalake["appended"], tmp_path / "orders"))


def assert_same_table(ours: DeltaTable, theirs: deltalake.DeltaTable) -> None:
    assert ours.version() == theirs.version()
    assert ours.table_uri == theirs.table_uri
    assert json.loads(ours.schema().to_json()) == json.loads(theirs.schema().to_json())
    for name in ("id", "name", "description", "partition_columns", "created_time", "configuration"):
        assert getattr(ours.metadata(), name) == getattr(theirs.metadata(), name), name
    assert tuple(map(_as_set, ours.protocol())) == tuple(map(_as_set, theirs.protocol()))
    assert sorted(ours.file_uris()) == sorted(theirs.file_uris())
    assert _sorted_dicts(ours.partitions()) == _sorted_dicts(theirs.partitions())
    assert ours.count() == theirs.count()


def _as_set(value: Any) -> Any:
    return frozenset(value) if isinstance(value, list) else value


def _sorted_dicts(rows: list[Any]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


@pytest.mark.in_turn
@pytest.mark.parametrize("name", sorted(by_deltalake.TABLES))
def test_a_real_table_looks_the_same_at_every_version(
    catalog: Catalog, tables_by_deltalake: dict[str, Path], name: str
) -> None:
    path = tables_by_deltalake[name]
    ours = catalog.attach_table(path, name)
    history = deltalake.DeltaTable(path).history()
    for entry in ours.history():
        version = entry["version"]
        ours.load_as_version(version)
        assert_same_table(ours, deltalake.DeltaTable(path, version=version))
        # Opened at an older version, deltalake gives that version's number to the newest commit; so the head is asked.
        assert ours.history() == [known for known in history if known["version"] <= version]


@pytest.mark.in_turn
@pytest.mark.parametrize("flatten", [False, True])
@pytest.mark.parametrize("name", sorted(by_deltalake.TABLES.keys() - {"column_mapped"}))
def test_add_actions_have_the_same_columns_and_values(
    catalog: Catalog, tables_by_deltalake: dict[str, Path], name: str, flatten: bool
) -> None:
    path = tables_by_deltalake[name]
    theirs = pa.table(deltalake.DeltaTable(path).get_add_actions(flatten)).sort_by("path")
    ours = pa.table(catalog.attach_table(path, name).get_add_actions(flatten)).sort_by("path")
    assert ours.schema.equals(theirs.schema), f"{ours.schema}\n\n{theirs.schema}"
    if name == "every_type":
        # deltalake does not read the decimal 1e+30 that it wrote; everything else is the same.
        assert ours.select(ours.column_names[:4]).equals(theirs.select(ours.column_names[:4]))
        ours, theirs = (_without_wide(table) for table in (ours, theirs))
    assert ours.to_pylist() == theirs.to_pylist()


def _without_wide(actions: pa.Table) -> pa.Table:
    flat = actions.flatten() if "min" in actions.column_names else actions
    return flat.drop_columns([name for name in ("min.wide", "max.wide") if name in flat.column_names])


def test_add_actions_of_mapped_columns_bear_the_names_that_users_know(
    catalog: Catalog, tables_by_deltalake: dict[str, Path]
) -> None:
    path = tables_by_deltalake["column_mapped"]
    ours = pa.table(catalog.attach_table(path, "t").get_add_actions(True)).sort_by("path")
    theirs = pa.table(deltalake.DeltaTable(path).get_add_actions(True)).sort_by("path")
    logical = {
        field.metadata["delta.columnMapping.physicalName"]: field.name
        for field in deltalake.DeltaTable(path).schema().fields
    }
    renamed = [".".join(logical.get(part, part) for part in name.split(".")) for name in theirs.column_names]
    assert ours.column_names == renamed
    assert ours.to_pylist() == theirs.rename_columns(renamed).to_pylist()


@pytest.mark.parametrize("member", MEMBERS)
def test_a_member_takes_the_arguments_that_deltalake_takes(member: str) -> None:
    ours, theirs = getattr(DeltaTable, member), getattr(deltalake.DeltaTable, member)
    if isinstance(theirs, property):
        assert isinstance(ours, property)
        return
    mine = inspect.signature(ours).parameters
    for name, parameter in inspect.signature(theirs).parameters.items():
        assert name in mine, name
        assert (mine[name].kind, mine[name].default) == (parameter.kind, parameter.default), name


def test_the_constructor_takes_the_arguments_that_deltalake_takes() -> None:
    theirs = inspect.signature(deltalake.DeltaTable.__init__).parameters
    ours = inspect.signature(DeltaTable.__init__).parameters
    assert [(p.name, p.default) for p in ours.values()] == [(p.name, p.default) for p in theirs.values()]


def test_a_table_opens_by_uri_by_name_and_by_location(
    engine: str, target: str, catalog: Catalog, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.attach_table(orders, "sales.orders")
    if engine != "postgres":
        opened = DeltaTable(f"deltasql://{engine}/{quote(target)}?table=sales.orders", version=1)
        assert (opened.name, opened.version()) == ("sales.orders", 1)
        opened.close()
    with pytest.raises(TableNotFoundError, match="DL_CATALOG"):
        DeltaTable("sales.orders")
    monkeypatch.setenv("DL_CATALOG", target)
    for address in ("sales.orders", str(orders), orders, orders.as_uri()):
        opened = DeltaTable(address)
        assert (opened.name, opened.version()) == ("sales.orders", 4)
        opened.close()
    with pytest.raises(TableNotFoundError, match="there is no Delta table at"):
        DeltaTable(orders.parent / "elsewhere")
    with pytest.raises(TableNotFoundError, match="there is no table"):
        DeltaTable("sales.nothing")


def test_a_catalog_uri_without_a_table_is_not_a_table() -> None:
    with pytest.raises(CatalogUriError, match=r"add \?table="):
        DeltaTable("deltasql://sqlite//x.db")


def test_deprecated_arguments_warn_and_do_nothing(
    catalog: Catalog, target: str, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.attach_table(orders, "sales.orders")
    monkeypatch.setenv("DL_CATALOG", target)
    with pytest.warns(DeprecationWarning, match="without_files"):
        opened = DeltaTable("sales.orders", without_files=True)
    opened.close()
    with pytest.warns(DeprecationWarning, match="partition_filters"):
        assert len(table.file_uris([("id", "=", 3)])) == 1
    with pytest.raises(ValueError, match="pass only"):
        table.partitions([("id", "=", 3)], file_pruning_predicate="id = 3")


def test_time_travel_by_version_text_and_datetime(catalog: Catalog, orders: Path) -> None:
    table = catalog.attach_table(orders, "sales.orders")
    times = {}
    for version in range(5):
        table.load_as_version(version)
        assert (table.version(), table.count()) == (version, 10 * (version + 1))
        times[version] = datetime.fromtimestamp(table.committed_at_ms() / 1000, UTC)
    for version, moment in times.items():
        for spelled in (moment, moment.replace(tzinfo=None), moment.isoformat()):
            table.load_as_version(spelled)
            assert table.version() == version
    table.load_as_version("2999-01-01T00:00:00Z")
    assert table.version() == 4


def test_a_version_or_time_that_is_not_there_is_refused_and_nothing_moves(catalog: Catalog, orders: Path) -> None:
    table = catalog.attach_table(orders, "sales.orders")
    for version in (5, 99, -1):
        with pytest.raises(VersionNotFoundError, match=r"sales\.orders"):
            table.load_as_version(version)
    with pytest.raises(ValueError, match="RFC 3339"):
        table.load_as_version("bogus")
    for wrong in (1.5, None):
        with pytest.raises(TypeError):
            table.load_as_version(wrong)  # type: ignore[arg-type]
    assert table.version() == 4
    table.load_as_version(True)  # a number to Python, and to deltalake
    assert table.version() == 1


def test_a_table_stays_at_its_version_while_others_commit(catalog: Catalog, orders: Path) -> None:
    table = catalog.attach_table(orders, "sales.orders")
    before = table.files().num_rows
    deltalake.DeltaTable(orders).delete("id < 25")
    catalog.follow()
    assert (table.version(), table.files().num_rows, table.count()) == (4, before, 50)
    assert table.plan("id = 3").num_files == 1, "the file is gone at the head, but not at this version"
    table.update_incremental()
    assert (table.version(), table.count(), table.plan("id = 3").num_files) == (5, 25, 0)


def test_history_ends_at_the_version_that_is_shown(catalog: Catalog, orders: Path) -> None:
    table = catalog.attach_table(orders, "sales.orders")
    table.load_as_version(2)
    assert [entry["version"] for entry in table.history()] == [2, 1, 0]
    assert [entry["version"] for entry in table.history(2)] == [2, 1]
    assert table.history(0) == []
    with pytest.raises(OverflowError, match="negative"):
        table.history(-1)


def test_app_transactions_and_domains(catalog: Catalog, tmp_path: Path) -> None:
    path = tmp_path / "t"
    for version in (3, 7):
        progress = deltalake.CommitProperties(app_transactions=[deltalake.Transaction("loader", version)])
        deltalake.write_deltalake(path, pa.table({"id": [version]}), mode="append", commit_properties=progress)
    table = catalog.attach_table(path, "t")
    assert table.transaction_version("loader") == 7
    assert table.transaction_version("somebody") is None
    table.load_as_version(0)
    assert table.transaction_version("loader") == 3
    assert table.domain_metadata() == {}


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "predicate",
    [
        "city = 'Zürich'",
        "n > 2 and day = '2026-01-01'",
        [("city", "=", "x=y")],
        [[("n", "<", 0)], [("id", ">=", 7)]],
        "id is null",
    ],
)
def test_a_predicate_keeps_no_more_files_than_deltalake_and_every_one_it_needs(
    catalog: Catalog, tables_by_deltalake: dict[str, Path], predicate: Any
) -> None:
    path = tables_by_deltalake["partitioned"]
    table = catalog.attach_table(path, "partitioned")
    theirs = deltalake.DeltaTable(path).file_uris(file_pruning_predicate=predicate)
    plan = table.plan(predicate)
    assert sorted(table.file_uris(file_pruning_predicate=predicate)) == sorted(theirs)
    assert (plan.num_files, plan.num_files + plan.num_pruned) == (len(theirs), len(table.file_uris()))
    assert _sorted_dicts(table.partitions(file_pruning_predicate=predicate)) == _sorted_dicts(
        deltalake.DeltaTable(path).partitions(file_pruning_predicate=predicate)
    )
    assert "sales" not in plan.explain()
    assert "partitioned version" in plan.explain()


def test_a_bad_predicate_names_what_is_wrong(catalog: Catalog, orders: Path) -> None:
    table = catalog.attach_table(orders, "sales.orders")
    with pytest.raises(PredicateError, match="nothing"):
        table.plan("nothing = 1")
    with pytest.raises(PredicateError):
        table.plan("id = = 1")


def test_files_are_arrow_and_may_be_asked_for_by_column(catalog: Catalog, orders: Path) -> None:
    table = catalog.attach_table(orders, "sales.orders")
    files = table.files()
    assert isinstance(files, pa.Table)
    assert json.loads(files.column("stats")[0].as_py())["numRecords"] == 10
    assert table.files(["path", "size"]).column_names == ["path", "size"]


def test_min_max_and_nulls_come_from_metadata_where_they_are_exact(catalog: Catalog, tmp_path: Path) -> None:
    path = tmp_path / "t"
    data = pa.table(
        {
            "id": [3, 1, 2],
            "name": ["b", None, "a"],
            "long_name": ["x" * 40, "y" * 80, "a"],
            "ratio": [0.5, float("nan"), 1.5],
            "day": [date(2026, 1, 1), date(2026, 1, 2), None],
            "none": pa.array([None, None, None], pa.int32()),
            "part": ["p", "q", None],
        }
    )
    deltalake.write_deltalake(path, data, partition_by=["part"])
    table = catalog.attach_table(path, "t")
    for column, low, high in (
        ("ID", 1, 3),
        ("name", "a", "b"),
        ("day", date(2026, 1, 1), date(2026, 1, 2)),
        ("part", "p", "q"),
        ("none", None, None),
    ):
        found = table.stats_of(column)
        assert (found.min, found.max, found.min_is_exact, found.max_is_exact) == (low, high, True, True), column
    for uncertain in ("long_name", "ratio"):
        found = table.stats_of(uncertain)
        assert (found.max, found.max_is_exact) == (None, False)
    with pytest.raises(PredicateError, match="nothing"):
        table.stats_of("nothing")


def test_counts_by_predicate_and_partition_come_from_metadata(
    catalog: Catalog, tables_by_deltalake: dict[str, Path]
) -> None:
    path = tables_by_deltalake["overwritten"]
    table = catalog.attach_table(path, "t")
    rows = deltalake.DeltaTable(path).to_pyarrow_table().column("region").to_pylist()
    counted = {one.values["region"]: one.num_records for one in table.partition_counts()}
    assert counted == {region: rows.count(region) for region in set(rows)}
    assert table.count("region = 'us'") == rows.count("us")
    assert table.count([("region", "in", ["us", "asia"])]) == rows.count("us") + rows.count("asia")
    with pytest.raises(DeltaError, match="does not tell"):
        table.count("amount > 10")
    table.load_as_version(0)
    older = deltalake.DeltaTable(path, version=0).to_pyarrow_table().column("region").to_pylist()
    assert table.count("region = 'us'") == older.count("us")
    with pytest.raises(DeltaError, match="newest version only"):
        table.partition_counts()
    assert table.stats_of("id").min_is_exact is False


def test_a_count_that_metadata_does_not_know_is_not_guessed(catalog: Catalog, orders: Path) -> None:
    commit = orders / "_delta_log" / f"{4:020}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            del line["add"]["stats"]
    commit.write_text("\n".join(map(json.dumps, lines)))
    table = catalog.attach_table(orders, "sales.orders")
    with pytest.raises(DeltaError, match="1 of 5 files do not say"):
        table.count()
    assert table.stats_of("id").max_is_exact is False
    assert catalog.table_infos()[0].num_records is None
    table.load_as_version(3)
    assert table.count() == 40


def test_diff_and_lineage_tell_how_a_version_came_to_be(catalog: Catalog, orders: Path) -> None:
    deltalake.DeltaTable(orders).delete("id < 10")
    table = catalog.attach_table(orders, "sales.orders")
    found = table.diff(3, 5)
    assert (found.added.num_rows, found.removed.num_rows, found.metadata_changed) == (1, 1, False)
    assert [entry.version for entry in table.lineage()] == [4, 3, 2, 1, 0]
    table.load_as_version(1)
    assert [entry.version for entry in table.lineage()] == [1, 0]
