"""The task of a copy, without Spark: ranges of pages at a snapshot become data files with exactly the rows of it."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalakedb.cdc.copy.copy_task import CopyResult, CopyTask, run_task
from deltalakedb.cdc.layers import current_schema
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.source import copy_plan as planning
from deltalakedb.cdc.source.copy_plan import CopyPlan, SourceMoved, claim, plan_copy, session_at
from deltalakedb.cdc.source.postgres import connect
from deltalakedb.cdc.source.publication import published_tables
from deltalakedb.cdc.source.slots import exported_snapshot
from deltalakedb.exceptions import CaptureSetupError, SourceUnavailableError, ValueNotHeld
from deltalakedb.log.protocol.paths import decode_path
from tests.cdc.conftest import Source

ALL = "create publication shop for all tables"


@contextmanager
def planned(source: Source, tasks: int = 2, **given: Any) -> Iterator[tuple[str, list[CopyPlan]]]:
    """The copy of all tables, and the snapshot that is held still for it."""
    settings = CaptureSettings(source.dsn, "shop", **given)
    with exported_snapshot(source.dsn) as (snapshot, _):
        with session_at(source.dsn, snapshot) as conn:
            plans = [plan_copy(conn, table, "shop", tasks) for table in published_tables(conn, settings)]
        yield snapshot, plans


def wait_until_alone(source: Source) -> None:
    others = (
        "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() "
        "and backend_type in ('client backend', 'walsender')"
    )
    deadline = time.monotonic() + 30
    with connect(source.dsn) as conn:
        while conn.execute(others).fetchone() != (0,):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def tasks_of(source: Source, snapshot: str, plan: CopyPlan, folder: Path) -> list[CopyTask]:
    folder.mkdir(exist_ok=True)
    return [
        CopyTask(
            dsn=source.dsn,
            snapshot=snapshot,
            table=plan.table,
            ranges=ranges,
            location=folder.as_uri(),
            options=None,
            schema=current_schema(plan.table).to_json(),
            partition_columns=(),
            configuration={},
            folder="w-1",
        )
        for ranges in plan.tasks
    ]


def copied(source: Source, folder: Path, **given: Any) -> pa.Table:
    """The rows that the tasks of the only table write."""
    with planned(source, **given) as (snapshot, (plan,)):
        return rows_of([run_task(task) for task in tasks_of(source, snapshot, plan, folder)], folder)


def rows_of(results: list[CopyResult], folder: Path) -> pa.Table:
    assert [result.failure for result in results] == [None] * len(results)
    tables = [pq.read_table(folder / decode_path(add.path)) for result in results for add in result.adds]
    assert sum(table.num_rows for table in tables) == sum(result.rows for result in results)
    return pa.concat_tables(tables)


def test_null_is_not_the_empty_text_and_any_text_comes_through(source: Source, tmp_path: Path) -> None:
    texts = [
        "",
        "plain",
        'a "quoted", text',
        "two\nlines",
        "\r\n",
        "\\.",
        "\\N",
        "tab\t",
        "ünïcode 🐘",
        " blank ",
        None,
    ]
    source.run("create table t (note text, id int primary key, other text)", ALL)
    with source.connect() as connection:
        connection.cursor().executemany(
            "insert into t (id, note, other) values (%s, %s, %s)",
            [(place, text, text) for place, text in enumerate(texts)],
        )
    rows = copied(source, tmp_path / "t").sort_by("id")
    assert rows["id"].to_pylist() == list(range(len(texts)))
    assert rows["note"].to_pylist() == texts
    assert rows["other"].to_pylist() == texts


def test_the_only_column_of_a_table_may_be_null_or_empty(source: Source, tmp_path: Path) -> None:
    source.run("create table t (note text)", "alter table t replica identity full", ALL)
    source.run("insert into t values (null), (''), (null), ('x')")
    rows = copied(source, tmp_path / "t")["note"].to_pylist()
    assert Counter(rows) == {None: 2, "": 1, "x": 1}


def test_a_value_larger_than_a_block_comes_through(source: Source, tmp_path: Path) -> None:
    source.run("create table t (id int primary key, note text)", ALL)
    source.run("insert into t values (1, 'small'), (2, repeat(E'x\\n', 8500000)), (3, 'small')")
    rows = copied(source, tmp_path / "t").sort_by("id")
    assert rows["note"].to_pylist() == ["small", "x\n" * 8_500_000, "small"]


def test_a_table_without_rows_makes_no_file(source: Source, tmp_path: Path) -> None:
    source.run("create table t (id int primary key)", ALL)
    with planned(source) as (snapshot, (plan,)):
        (task,) = tasks_of(source, snapshot, plan, tmp_path / "t")
        assert run_task(task) == CopyResult("public.t", copy_id=task.folder)


def test_ranges_of_pages_have_each_row_of_the_snapshot_once(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "_MIN_PAGES", 3)
    source.run("create table t (id int primary key, note text)", ALL)
    source.run("insert into t select i, repeat('x', 100) from generate_series(1, 1000) i", "analyze t")
    with planned(source, tasks=4) as (snapshot, (plan,)):
        assert (plan.rows, len(plan.tasks)) == (1000, 4)
        # What happens now is the stream's: rows move to other pages, and to pages that no task was told of.
        source.run(
            "update t set note = repeat('y', 200) where id % 3 = 0",
            "delete from t where id % 7 = 0",
            "insert into t select i, repeat('z', 100) from generate_series(1001, 3000) i",
        )
        results = [run_task(task) for task in tasks_of(source, snapshot, plan, tmp_path / "t")]
        assert all(result.rows for result in results)
        rows = rows_of(results, tmp_path / "t")
    assert sorted(rows["id"].to_pylist()) == list(range(1, 1001))
    assert set(rows["note"].to_pylist()) == {"x" * 100}


def test_a_partitioned_table_is_copied_by_its_partitions_small_ones_together(source: Source, tmp_path: Path) -> None:
    source.run(
        "create table events (id int, day int, primary key (id, day)) partition by range (day)",
        *(f"create table events_{i} partition of events for values from ({i}) to ({i + 1})" for i in range(5)),
        "create table odd (day int, junk text, id int, primary key (id, day))",
        "alter table odd drop column junk",
        "alter table events attach partition odd for values from (5) to (9)",
        "create publication shop for table events with (publish_via_partition_root = true)",
        "insert into events select i, i % 9 from generate_series(1, 900) i",
    )
    with planned(source) as (snapshot, (plan,)):
        assert [len(task) for task in plan.tasks] == [6]
        results = [run_task(task) for task in tasks_of(source, snapshot, plan, tmp_path / "t")]
        rows = rows_of(results, tmp_path / "t")
    assert sorted(rows["id"].to_pylist()) == list(range(1, 901))
    assert all(day == id_ % 9 for id_, day in zip(rows["id"].to_pylist(), rows["day"].to_pylist(), strict=True))


def test_a_partitioned_table_without_partitions_has_no_tasks(source: Source) -> None:
    source.run(
        "create table events (id int primary key) partition by range (id)",
        "create publication shop for table events with (publish_via_partition_root = true)",
    )
    with planned(source) as (_, (plan,)):
        assert (plan.tasks, plan.rows) == ((), 0)


def test_rows_of_inheriting_tables_are_not_copied_twice(source: Source, tmp_path: Path) -> None:
    source.run(
        "create table parent (id int primary key)",
        "create table child (primary key (id)) inherits (parent)",
        "create publication shop for table only parent",
        "insert into parent values (1)",
        "insert into child values (2)",
    )
    assert copied(source, tmp_path / "t")["id"].to_pylist() == [1]


def test_the_filter_of_a_publication_is_followed(source: Source, tmp_path: Path) -> None:
    source.run(
        "create table t (id int, kind text, primary key (id, kind))",
        "insert into t values (1, 'old'), (2, 'new'), (3, 'new'), (11, 'new')",
        "create publication shop for table t where (kind = 'new' and id < 10)",
    )
    assert sorted(copied(source, tmp_path / "t")["id"].to_pylist()) == [2, 3]


@pytest.mark.parametrize(
    "change",
    [
        "truncate t",
        "alter table t alter id type bigint",
        "alter table t rename id to number",
        "drop table t",
        "vacuum full t",
    ],
)
def test_a_table_that_changed_since_the_snapshot_asks_for_another_one(
    source: Source, tmp_path: Path, change: str
) -> None:
    source.run("create table t (id int primary key)", ALL, "insert into t select generate_series(1, 100)")
    with planned(source) as (snapshot, (plan,)):
        source.run(change)
        (result,) = [run_task(task) for task in tasks_of(source, snapshot, plan, tmp_path / "t")]
        assert "public.t" in (result.moved or "")
        assert (result.failure, result.adds) == (None, ())


def test_a_table_that_was_dropped_since_the_snapshot_cannot_be_planned(source: Source) -> None:
    source.run("create table t (id int primary key)", ALL)
    with exported_snapshot(source.dsn) as (snapshot, _), session_at(source.dsn, snapshot) as held:
        (table,) = published_tables(held, CaptureSettings(source.dsn, "shop"))
        source.run("drop table t")
        with pytest.raises(SourceMoved, match="public.t"), held.transaction():
            plan_copy(held, table, "shop", 2)
        assert held.execute("select 1").fetchone() == (1,), "the snapshot is still of use for others"


def test_a_table_is_not_rewritten_while_a_task_reads_it(source: Source) -> None:
    source.run("create table t (id int primary key)", ALL)
    with planned(source) as (snapshot, (plan,)):
        (pages,) = plan.tasks[0]
        with session_at(source.dsn, snapshot) as conn, source.connect() as other:
            claim(conn, pages, "public.t")
            other.execute("set lock_timeout = '100ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute("truncate t")
            other.execute("insert into t values (101)")
        source.run("truncate t")  # the task has ended


def test_a_column_that_came_between_snapshot_and_lock_is_left_to_the_stream(source: Source, tmp_path: Path) -> None:
    source.run("create table t (id int primary key)", ALL, "insert into t select generate_series(1, 100)")
    with exported_snapshot(source.dsn) as (snapshot, _), session_at(source.dsn, snapshot) as held:
        source.run("alter table t add column note text")
        (table,) = published_tables(held, CaptureSettings(source.dsn, "shop"))
        plan = plan_copy(held, table, "shop", 2)
        results = [run_task(task) for task in tasks_of(source, snapshot, plan, tmp_path / "t")]
        assert rows_of(results, tmp_path / "t").column_names == ["id"]


def test_a_role_that_may_not_read_a_table_is_told_the_grant(source: Source) -> None:
    role = f"reader_{source.database}"
    source.run("create table t (id int primary key)", ALL, f"create role {role} login replication")
    try:
        with exported_snapshot(source.dsn) as (snapshot, _), session_at(f"{source.dsn} user={role}", snapshot) as held:
            (table,) = published_tables(held, CaptureSettings(source.dsn, "shop"))
            with pytest.raises(CaptureSetupError, match=f"grant select on public.t to {role}"), held.transaction():
                plan_copy(held, table, "shop", 2)
            source.run(f"grant select on t to {role}")
            assert plan_copy(held, table, "shop", 2).table == table
    finally:
        source.run(f"drop owned by {role}", f"drop role {role}")


def test_rows_that_a_policy_hides_are_not_silently_left_out(source: Source) -> None:
    role = f"reader_{source.database}"
    source.run(
        "create table t (id int primary key)",
        ALL,
        f"create role {role} login replication",
        f"grant select on t to {role}",
        "alter table t enable row level security",
        "create policy few on t using (id < 10)",
    )
    try:
        with exported_snapshot(source.dsn) as (snapshot, _), session_at(f"{source.dsn} user={role}", snapshot) as held:
            (table,) = published_tables(held, CaptureSettings(source.dsn, "shop"))
            with pytest.raises(CaptureSetupError, match="row-level security"):
                plan_copy(held, table, "shop", 2)
    finally:
        source.run(f"drop owned by {role}", f"drop role {role}")


def test_a_value_that_its_type_cannot_hold_is_told_by_its_column(source: Source, tmp_path: Path) -> None:
    source.run("create table t (id int primary key, price numeric(10, 2))", ALL, "insert into t values (1, 'NaN')")
    with planned(source) as (snapshot, (plan,)):
        (task,) = tasks_of(source, snapshot, plan, tmp_path / "t")
        failure = run_task(task).failure
    assert isinstance(failure, ValueNotHeld)
    assert "public.t.price" in str(failure)
    assert not list((tmp_path / "t").rglob("*.parquet")), "nothing is left behind"


def test_a_task_without_its_snapshot_or_its_server_is_a_source_unavailable(source: Source, tmp_path: Path) -> None:
    source.run("create table t (id int primary key)", ALL)
    with planned(source) as (snapshot, (plan,)):
        (task,) = tasks_of(source, snapshot, plan, tmp_path / "t")
    wait_until_alone(source)  # the server forgets the snapshot when it notices that its session is gone
    for broken in (task, replace(task, dsn="host=127.0.0.1 port=1")):
        assert isinstance(run_task(broken).failure, SourceUnavailableError)


def test_a_connection_that_breaks_in_the_middle_leaves_nothing_behind(source: Source, tmp_path: Path) -> None:
    source.run(
        "create table t (id int primary key, note text)",
        ALL,
        "insert into t select i, repeat('x', 100) from generate_series(1, 1000) i",
        # The row at which the server dies, as far as the task can tell.
        "create function public.die(int) returns int language plpgsql as "
        "$$begin if $1 = 900 then perform pg_terminate_backend(pg_backend_pid()); end if; return $1; end$$",
    )
    with planned(source) as (snapshot, (plan,)):
        (task,) = tasks_of(source, snapshot, plan, tmp_path / "t")
        deadly = [replace(one, copy=one.copy.replace('"id",', 'public.die("id"),')) for one in task.ranges]
        failure = run_task(replace(task, ranges=tuple(deadly))).failure
    assert isinstance(failure, SourceUnavailableError)
    assert not list((tmp_path / "t").rglob("*.parquet"))


def test_a_task_says_nothing_of_the_password_it_was_given(source: Source, tmp_path: Path) -> None:
    source.run("create table t (id int primary key)", ALL)
    with planned(source) as (snapshot, (plan,)):
        (task,) = tasks_of(source, snapshot, plan, tmp_path / "t")
    told = replace(task, dsn="host=127.0.0.1 port=1 password=s3cr3t")
    assert "s3cr3t" not in f"{told!r} {run_task(told).failure}"


def test_sessions_of_a_copy_see_all_time_outs_lifted(source: Source) -> None:
    source.run(f"alter database {source.database} set idle_in_transaction_session_timeout = '1s'")
    with exported_snapshot(source.dsn) as (snapshot, _), session_at(source.dsn, snapshot) as held:
        assert held.execute("show idle_in_transaction_session_timeout").fetchone() == ("0",)
    with connect(source.dsn) as conn:
        assert conn.execute("show lock_timeout").fetchone() == ("0",)
