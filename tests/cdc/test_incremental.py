"""Copies beside the stream: whatever happens between two parts, the table is the source's at one LSN."""

import os
import random
import time

import pytest

from deltalakedb.cdc.copy.copies import load_copies
from deltalakedb.cdc.copy.resnapshot import request_resnapshot
from deltalakedb.cdc.run.opening import add_tables
from deltalakedb.cdc.run.status import capture_status
from deltalakedb.cdc.source.source_catalog import catalog_mark
from tests.cdc import judging
from tests.cdc.conftest import Lake, Source
from tests.cdc.local_jobs import DOCUMENTS, beside, copied, fill

FULL = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
SEEDS = range(200 if FULL else 4)


def test_a_table_is_read_in_parts_and_appears_as_one_version(lake: Lake, source: Source) -> None:
    source.run(*DOCUMENTS)
    fill(source, 1, 60)
    with beside(lake, source) as made:
        seen: list[bool] = []
        made.jobs.before_part = lambda: seen.append("lake.documents" in lake.catalog.tables())
        made.begin()
        assert made.finish() == ["public.documents"]
        assert len(seen) > 3
        assert not any(seen), "nothing of it was to be seen before it was whole"
        copied(made, "documents")
        judging.check_current(lake.catalog, source, made.follower.capture)
        assert load_copies(lake.catalog, made.follower.capture) == ({}, [])
        source.run("update documents set n = 7 where id = 3", "delete from documents where id = 4")
        made.follower.drain(int(source.run("select pg_current_wal_flush_lsn() - '0/0'::pg_lsn")[0][0]))
        judging.check_all(lake.catalog, source, made.follower.capture, None)


def test_rows_that_move_to_pages_that_are_read_later_are_not_there_twice(lake: Lake, source: Source) -> None:
    source.run(*DOCUMENTS)
    fill(source, 1, 40)
    with beside(lake, source) as made:
        once = iter(range(100))

        def move() -> None:
            if next(once) == 2:  # from the first pages to the end
                source.run("update documents set n = n + 1 where id <= 15", "insert into documents values (100, 1)")

        made.jobs.before_part = move
        source.run("delete from documents where id > 30")  # room at the end, within the pages that are read
        source.run("vacuum documents")
        fill(source, 31, 31)
        made.begin()
        made.finish()
        judging.check_current(lake.catalog, source, made.follower.capture)
        copied(made, "documents")


def test_a_row_that_moves_to_a_page_that_was_read_is_read_once_more_for_its_large_value(
    lake: Lake, source: Source
) -> None:
    source.run(*DOCUMENTS)
    fill(source, 1, 60)
    source.run("delete from documents where id <= 20")
    source.run("vacuum documents")  # the first pages have room
    with beside(lake, source) as made:
        once = iter(range(100))

        def move() -> None:
            if next(once) == 3:
                source.run(
                    "update documents set n = n + 1 where id > 50", "update documents set id = 2000 where id = 59"
                )

        made.jobs.before_part = move
        made.begin()
        parts = len(made.follower.copies["public.documents"].tasks)
        made.finish()
        assert len(made.jobs.jobs) > parts, "a patch was read"
        judging.check_current(lake.catalog, source, made.follower.capture)
        copied(made, "documents")


@pytest.mark.parametrize("seed", SEEDS)
def test_random_changes_between_parts(lake: Lake, source: Source, seed: int) -> None:
    choices = random.Random(seed)
    source.run(
        *DOCUMENTS,
        "create table plain (a int, b text)",
        "alter table plain replica identity full",
        "insert into plain select i % 5, 'x' from generate_series(1, 50) i",
        "create table empty (id int primary key)",
    )
    fill(source, 1, 80)
    settings = {"buckets": choices.choice([0, 3]), "deletion_vectors": choices.random() < 0.7}
    settings["change_data_feed"] = choices.random() < 0.3
    with beside(lake, source, **settings) as made:
        made.jobs.before_part = lambda: _change(source, choices)
        made.begin()
        for _ in range(20):
            made.finish()
            if all(table.stage == "streaming" for table in made.follower.capture.tables.values()):
                break
            made.begin()
        made.jobs.before_part = lambda: None
        made.follower.drain(int(source.run("select pg_current_wal_flush_lsn() - '0/0'::pg_lsn")[0][0]))
        judging.check_all(lake.catalog, source, made.follower.capture, None)


def _change(source: Source, choices: random.Random) -> None:
    for _ in range(choices.randrange(4)):
        low = choices.randrange(1, 100)
        source.run(
            *choices.choices(
                [
                    (f"update documents set n = n + 1 where id between {low} and {low + 20}",),
                    (f"update documents set body = repeat('new {low}', 500) where id between {low} and {low + 3}",),
                    (f"delete from documents where id between {low} and {low + 5}",),
                    (
                        f"insert into documents select i, 1, repeat('q', 700), repeat('z{low}', 900) from "
                        f"generate_series({low}, {low + 9}) i on conflict do nothing",
                    ),
                    (f"update documents set id = id + 1000 where id between {low} and {low + 2}",),
                    (
                        f"update documents set id = id - 1000 where id between {low + 1000} and {low + 1004} "
                        "and not exists (select 1 from documents d where d.id = documents.id - 1000)",
                    ),
                    ("vacuum documents",),
                    ("truncate documents", f"insert into documents values ({low}, 5, 'after', 'short')"),
                    (
                        f"update plain set b = b || '{low % 3}' where a = {low % 5}",
                        f"insert into plain values ({low % 5}, 'x')",
                    ),
                    (f"delete from plain where ctid = (select min(ctid) from plain where a = {low % 5})",),
                    ("vacuum full documents",),
                ],
                weights=[8, 3, 5, 6, 3, 3, 5, 0.7, 4, 3, 0.5],
            )[0]
        )


def test_a_copy_that_was_cut_goes_on_with_the_parts_it_lacks(lake: Lake, source: Source) -> None:
    source.run(*DOCUMENTS)
    fill(source, 1, 60)
    with beside(lake, source) as made:
        made.begin()
        parts = len(made.follower.copies["public.documents"].tasks)
        while len(made.follower.copies["public.documents"].chunks) < 3:
            made.copier.work(made.follower)
            time.sleep(0.01)
    status = capture_status(lake.catalog, made.settings)
    (told,) = status.tables
    assert (told.stage, told.notes) == ("copying", (f"3 of {parts} parts of its copy are read",))
    assert any("is not copied to the end: dl cdc start" in problem for problem in status.problems)
    source.run("update documents set n = 5 where id % 3 = 0", "delete from documents where id = 10")
    with beside(lake, source) as made:
        copy = made.follower.copies["public.documents"]
        assert len(copy.chunks) >= 3
        left = len(copy.missing)
        assert 0 < left < parts
        made.finish()
        assert len(made.jobs.jobs) == left, "only what lacked was read"
        judging.check_current(lake.catalog, source, made.follower.capture)
        copied(made, "documents")


def test_a_new_copy_made_beside_the_stream_keeps_the_table_and_its_versions(lake: Lake, source: Source) -> None:
    source.run(*DOCUMENTS)
    fill(source, 1, 30)
    with beside(lake, source, chunk_bytes=1 << 20) as made:
        made.begin()
        made.finish()
        first = lake.catalog.table("lake.documents")
    source.run("update documents set n = 1 where id = 1")
    request_resnapshot(lake.catalog, made.settings, ["documents"])
    with beside(lake, source) as made:

        def change() -> None:
            source.run("update documents set n = n + 1 where id < 20")

        made.jobs.before_part = change
        made.begin()
        made.finish()
        again = lake.catalog.table("lake.documents")
        assert again.version() == first.version() + 1
        assert again.table_uri == first.table_uri
        judging.check_current(lake.catalog, source, made.follower.capture)


def test_a_copy_that_is_asked_for_anew_meanwhile_leaves_nothing_behind(lake: Lake, source: Source) -> None:
    source.run(*DOCUMENTS)
    fill(source, 1, 60)
    with beside(lake, source) as made:
        made.begin()
        while len(made.follower.copies["public.documents"].chunks) < 2:
            made.copier.work(made.follower)
            time.sleep(0.01)
        request_resnapshot(lake.catalog, made.settings, ["documents"], is_running=True)
        made.follower.check_requests()
        assert made.follower.copies == {}
        made.begin()
        made.finish()
        judging.check_all(lake.catalog, source, made.follower.capture, None)
    with beside(lake, source) as made:
        assert load_copies(lake.catalog, made.follower.capture) == ({}, []), "the next start forgets the first one"


def test_a_transaction_from_before_the_copy_is_waited_for(lake: Lake, source: Source) -> None:
    source.run(*DOCUMENTS)
    fill(source, 1, 30)
    with beside(lake, source) as made, source.connect(autocommit=False) as other:
        other.execute("update documents set n = 77 where id = 1")
        made.begin()
        tries = iter(range(100))

        def end() -> None:
            if next(tries) == 2:
                other.commit()

        made.jobs.before_part = end
        made.finish()
        judging.check_current(lake.catalog, source, made.follower.capture)


def test_columns_that_change_during_a_copy_begin_it_anew(lake: Lake, source: Source) -> None:
    source.run(*DOCUMENTS)
    fill(source, 1, 60)
    with beside(lake, source) as made:
        once = iter(range(1000))

        def change() -> None:
            if next(once) == 3:
                source.run("alter table documents add column more int", "update documents set more = 1 where id = 2")

        made.jobs.before_part = change
        made.begin()
        made.finish()
        assert made.follower.capture.tables["public.documents"].stage == "pending"
        assert list((lake.warehouse / "lake").rglob("part-*.parquet")) == [], "nothing is left of the first one"
        made.begin()
        made.finish()
        judging.check_current(lake.catalog, source, made.follower.capture)
        assert "more" in lake.catalog.table("lake.documents").schema().to_arrow().names


def test_the_catalog_of_the_source_is_looked_at_only_when_somebody_has_changed_it(source: Source) -> None:
    source.run(*DOCUMENTS)
    with source.connect() as conn:
        marks = [catalog_mark(conn)]
        fill(source, 1, 5)
        source.run("vacuum analyze documents")
        conn.execute("create temp table own (id int)")
        assert catalog_mark(conn) == marks[0], "rows and temporary tables change nothing"
        for statement in (
            "alter table documents add column more int",
            "alter table documents rename column more to less",
            "alter table documents replica identity full",
            "create table other (id int)",
            "create unique index on documents (n, id)",
            "alter publication shop set (publish = 'insert')",
            "create publication another for table other",
            "alter publication another drop table other",
            "drop table other",
            "create type pair as (a int, b int)",
            "alter type pair rename attribute a to c",
        ):
            source.run(statement)
            marks.append(catalog_mark(conn))
    assert len(set(marks)) == len(marks)


def test_other_tables_follow_the_stream_while_a_large_one_is_copied(lake: Lake, source: Source) -> None:
    source.run(*DOCUMENTS, "create table small (id int primary key)")
    fill(source, 1, 120)
    with beside(lake, source) as made:
        follower = made.follower
        made.begin()
        while "public.small" in follower.copies:
            made.copier.work(follower)
            follower.drain(int(source.run("select pg_current_wal_flush_lsn() - '0/0'::pg_lsn")[0][0]))
        lacking = len(follower.copies["public.documents"].missing)
        assert lacking > 3, "the small one was there long before the large one"
        for number in range(3):
            source.run(f"insert into small values ({number})", f"update documents set n = {number} where id = 5")
            follower.drain(int(source.run("select pg_current_wal_flush_lsn() - '0/0'::pg_lsn")[0][0]))
            assert lake.catalog.table("lake.small").count() == number + 1
            assert lake.catalog.table("lake.small_changes").count() == number + 1
            assert "lake.documents" not in lake.catalog.tables()
        source.run("create table late (id int primary key)", "insert into late values (1)")
        capture = add_tables(lake.catalog, follower.conn, follower.capture, made.settings)
        follower.use(capture)
        made.begin()
        made.finish()
        judging.check_all(lake.catalog, source, follower.capture, None)
        assert lake.catalog.table("lake.documents").version() == 0


def test_a_copy_whose_files_were_deleted_begins_anew(lake: Lake, source: Source) -> None:
    source.run(*DOCUMENTS)
    fill(source, 1, 60)
    with beside(lake, source) as made:
        made.begin()
        copy = made.follower.copies["public.documents"]
        while len(copy.chunks) < 2:
            made.copier.work(made.follower)
            time.sleep(0.01)
        part = next(iter(copy.chunks.values())).adds[0].path.rpartition("/")[2]  # of a part that is read to its end
        next(lake.warehouse.rglob(part)).unlink()
        assert made.finish() == []
        assert made.follower.capture.tables["public.documents"].stage == "pending"
        made.begin()
        made.finish()
        judging.check_current(lake.catalog, source, made.follower.capture)


def test_a_table_that_is_truncated_all_the_time_is_copied(lake: Lake, source: Source) -> None:
    source.run(*DOCUMENTS)
    fill(source, 1, 60)
    with beside(lake, source) as made:

        def truncate() -> None:
            source.run("truncate documents", "insert into documents values (1, 1, 'a', 'b')")

        made.jobs.before_part = truncate
        for _ in range(4):
            if made.follower.capture.tables["public.documents"].stage != "streaming":
                made.begin()
                made.finish()
        judging.check_current(lake.catalog, source, made.follower.capture)


def test_small_tables_share_a_job_and_a_commit(lake: Lake, source: Source) -> None:
    for number in range(20):
        source.run(f"create table t{number} (id int primary key)", f"insert into t{number} values ({number})")
    source.run("create publication shop for all tables")
    with beside(lake, source) as made:
        made.begin()
        made.finish()
        assert len(made.jobs.jobs) <= 3
        found = lake.catalog.sql("select distinct txn_id from dl_table_versions where version = 0")
        assert found.num_rows <= 5
        judging.check_current(lake.catalog, source, made.follower.capture)
