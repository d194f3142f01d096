"""A publication that somebody changes under a capture, and tables that will not come back."""

import threading
from pathlib import Path
from typing import Any

import pytest

from deltalakedb.cdc.apply.batches import commit_tables
from deltalakedb.cdc.copy.resnapshot import resnapshot
from deltalakedb.cdc.run.choice_changes import plan_choice
from deltalakedb.cdc.run.runner import Runner
from deltalakedb.cdc.run.status import capture_status
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.exceptions import CaptureSetupError
from tests.cdc import judging
from tests.cdc.choosing import choosing, settings_from
from tests.cdc.conftest import Lake, Source, both_versions
from tests.cdc.evolving import evolving
from tests.cdc.local_jobs import LocalJobs

ORDERS = "create table orders (id bigint primary key, name text)"
ITEMS = "create table items (id int primary key, note text)"
SILENCED = "alter publication shop set (publish = 'insert')"
WHOLE = "alter publication shop set (publish = 'insert, update, delete, truncate')"


@both_versions
def test_tables_stop_while_the_publication_does_not_send_every_kind_of_change(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS) as capture:
        source.run("insert into orders values (1, 'a'), (2, 'b')", SILENCED, "delete from orders where id = 1")
        capture.settle()
        assert (capture.table().reason or "").startswith("the publication shop leaves out update, delete, truncate")
        assert "dl cdc resnapshot public.orders" in (capture.table().reason or "")
        with pytest.raises(CaptureSetupError, match="leaves out update, delete, truncate"):
            resnapshot(lake.catalog, capture.settings, ["orders"])


@both_versions
def test_tables_stop_if_the_publication_did_not_send_every_kind_of_change_for_a_while(
    lake: Lake, source: Source
) -> None:
    with evolving(lake, source, ORDERS, ITEMS) as capture:
        source.run("insert into orders values (1, 'a'), (2, 'b')")
        capture.settle()
        source.run(SILENCED, "delete from orders where id = 1", WHOLE, "insert into orders values (3, 'c')")
        capture.settle()
        assert "set them back" in (capture.table().reason or "")
        assert capture.table("public.items").stage == "stopped", "nobody knows of which table a change is missing"


@both_versions
def test_other_options_of_the_publication_stop_no_table(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS) as capture:
        before = capture.table().publishing
        source.run("alter publication shop set (publish_via_partition_root = true)", "insert into orders values (1)")
        capture.settle()
        capture.check_equal(source)
        assert capture.table().publishing != before
        source.run(SILENCED, WHOLE)
        capture.settle()
        assert "set them back" in (capture.table().reason or ""), "the new options are those to compare with"


def test_what_an_older_release_did_not_note_of_the_publication_is_noted_at_the_first_look(
    lake: Lake, source: Source
) -> None:
    with evolving(lake, source, ORDERS) as capture:
        noted = capture.table().publishing
        value = capture.table().to_value()
        del value["publishing"]
        old = type(capture.table()).from_value(value)
        capture.capture = commit_tables(lake.catalog, capture.capture, [old], "as it was noted before")
        capture.settle()
        assert (capture.table().stage, capture.table().publishing) == ("streaming", noted)


@both_versions
def test_a_publication_that_is_made_anew_asks_for_new_copies_and_they_mend_it(lake: Lake, source: Source) -> None:
    source.run(ORDERS, "insert into orders values (1, 'a')", "create publication shop for all tables")
    settings = CaptureSettings(source.dsn, "shop", namespace="lake")
    run_once(lake, settings)
    source.run("drop publication shop", "insert into orders values (2, 'b')", "create publication shop for all tables")
    source.run("insert into orders values (3, 'c')")
    (problem,) = capture_status(lake.catalog, settings).problems
    assert "made anew" in problem
    try:  # Postgres 15 cannot read what was written without the publication, 18 leaves it out
        reason = run_once(lake, settings)["public.orders"]
    except CaptureSetupError as error:
        reason = str(error)
    assert "dl cdc resnapshot" in reason
    resnapshot(lake.catalog, settings)
    assert run_once(lake, settings) == {}
    judging.check_current(lake.catalog, source, judging.captured(lake.catalog, settings))


def run_once(lake: Lake, settings: CaptureSettings) -> dict[str, str]:
    """Capture what is committed; the tables that have stopped, and why."""
    jobs: Any = LocalJobs()
    return dict(Runner(lake.catalog, settings, jobs, threading.Event()).run(once=True).stopped)


def test_a_table_that_was_dropped_can_be_taken_out_of_the_capture(lake: Lake, source: Source, tmp_path: Path) -> None:
    source.run(ORDERS, ITEMS, "create table gone (id int primary key)", "create publication shop for all tables")
    before = settings_from('namespace = "lake"\n', source, tmp_path)
    with choosing(lake, source, before) as capture:
        source.run("drop table gone")
        capture.settle()
        assert "exclude public.gone in the settings, then dl cdc apply" in (capture.table("public.gone").reason or "")
        (problem,) = capture_status(lake.catalog, before).problems
        assert problem.startswith("public.gone is stopped: the table was dropped")
        with pytest.raises(CaptureSetupError, match=r"public\.gone: it is not in the publication shop any more"):
            resnapshot(lake.catalog, before, ["gone"])
        after = settings_from('namespace = "lake"\nexclude = ["gone", "items"]\n', source, tmp_path)
        plan = capture.apply(after)
        assert [(step.source, step.action) for step in plan.steps] == [
            ("public.gone", "leave"), ("public.items", "leave"),
        ]  # fmt: skip
        assert capture_status(lake.catalog, after).problems == ()
        assert plan_choice(lake.catalog, after).steps == (), "it is done once"
        asked, _ = resnapshot(lake.catalog, after)
        assert {table.source for table in asked.tables.values() if table.stage == "pending"} == {"public.orders"}
        with pytest.raises(CaptureSetupError, match=r"public\.items: it is not among the tables"):
            resnapshot(lake.catalog, after, ["items"])
