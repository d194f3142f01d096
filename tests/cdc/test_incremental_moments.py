"""Copies beside the stream whose rows are read at moments that matter: commits in flight, keys that change hands."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.cdc import judging
from tests.cdc.conftest import Lake, Source
from tests.cdc.local_jobs import DOCUMENTS, beside, copied, fill


def test_a_large_value_is_not_that_of_a_row_that_had_the_key_before(lake: Lake, source: Source) -> None:
    source.run(*DOCUMENTS)
    fill(source, 1, 60)
    with beside(lake, source) as made:
        made.begin()
        last = len(made.follower.copies["public.documents"].tasks) - 1
        once = iter(range(100))

        def move() -> None:
            number = next(once)
            if number == last:  # the parts that were read have both rows by their old keys
                source.run(
                    "delete from documents where id = 1",
                    "update documents set id = 1 where id = 2",
                    "update documents set id = -3 where id = 3",
                    "update documents set id = 3 where id = 4",
                    "update documents set id = 4 where id = -3",
                )
            elif number == last + 1:  # and once more while they are read again
                source.run("delete from documents where id = 3", "update documents set id = 3 where id = 5")

        made.jobs.before_part = move
        made.finish()
        assert len(made.jobs.jobs) > last + 2, "what was read again had changed, and was read a third time"
        judging.check_current(lake.catalog, source, made.follower.capture)
        copied(made, "documents")


def test_all_parts_of_a_table_without_a_key_are_of_one_snapshot_also_after_one_of_them_failed(
    lake: Lake, source: Source
) -> None:
    source.run(
        "create table plain (a int, pad text)",
        "alter table plain replica identity full",
        "insert into plain select i, repeat('p', 700) from generate_series(1, 60) i",
        "create publication shop for all tables",
    )
    with beside(lake, source) as made:
        made.begin()
        landing = made.follower.copies["public.plain"].landing
        assert landing.job is not None
        folder = Path(landing.location.removeprefix("file://")) / landing.job.folder
        aside = folder.with_name("aside")
        numbers = iter(range(100))

        def hinder() -> None:
            number = next(numbers)
            if number == 4:  # nothing can be written there
                folder.rename(aside)
                folder.write_text("no folder")
            elif aside.exists():
                folder.unlink()
                aside.rename(folder)
                source.run("delete from plain where a <= 20", "insert into plain select a + 100, 'q' from plain")

        made.jobs.before_part = hinder
        assert made.finish() == ["public.plain"]
        assert next(numbers) > 9, "the parts before the one that failed were read again"
        made.follower.drain(int(source.run("select pg_current_wal_flush_lsn() - '0/0'::pg_lsn")[0][0]))
        judging.check_current(lake.catalog, source, made.follower.capture)


def test_a_transaction_whose_commit_is_in_the_log_and_not_visible_yet_is_in_the_copy(
    lake: Lake, source: Source
) -> None:
    source.run(
        *DOCUMENTS,
        "insert into documents values (1, 1)",
        f"alter database {source.database} set synchronous_commit = local",
    )
    with beside(lake, source) as made, waiting_for_a_standby(source, "insert into documents values (2, 2)"):
        made.begin()
        for _ in range(10):  # time enough to read it without that row
            made.copier.work(made.follower)
            time.sleep(0.05)
        assert "public.documents" in made.follower.copies, "it waits for the transaction"
    with beside(lake, source) as made:
        made.finish()
        judging.check_current(lake.catalog, source, made.follower.capture)


@contextmanager
def waiting_for_a_standby(source: Source, statement: str) -> Iterator[None]:
    """For the duration of the block a statement is in the log, but its commit waits for a standby, and is not seen."""
    with source.connect() as session, ThreadPoolExecutor(1) as pool:
        source.run("alter system set synchronous_standby_names = 'nobody'", "select pg_reload_conf()")
        try:
            session.execute("set synchronous_commit = on")
            done = pool.submit(session.execute, statement.encode())
            until = time.monotonic() + 60
            while source.run("select wait_event from pg_stat_activity where wait_event = 'SyncRep'") == []:
                assert not done.done()
                assert time.monotonic() < until
                time.sleep(0.02)
            yield
        finally:
            source.run("alter system reset synchronous_standby_names", "select pg_reload_conf()")
            done.result()


def test_the_marks_of_a_copy_do_not_wait_for_the_source_to_write_its_log(lake: Lake, source: Source) -> None:
    source.run(*DOCUMENTS, "insert into documents values (1, 1)")
    source.run(
        f"alter database {source.database} set synchronous_commit = off",
        "alter system set wal_writer_delay = '10s'",
        "select pg_reload_conf()",
    )
    try:
        with beside(lake, source) as made:
            made.begin()
            made.finish()
            judging.check_current(lake.catalog, source, made.follower.capture)
    finally:
        source.run("alter system reset wal_writer_delay", "select pg_reload_conf()")
