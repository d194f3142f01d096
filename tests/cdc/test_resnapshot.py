"""New copies are asked for while somebody runs the capture: it is marked, and lost in no race with batches."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from deltalakedb.cdc.apply.batches import commit_progress, reload_capture
from deltalakedb.cdc.control import Capture, CaptureChangedError
from deltalakedb.cdc.copy.resnapshot import request_resnapshot, resnapshot
from deltalakedb.cdc.evolve.evolution import stop_table
from deltalakedb.cdc.run.presence import RunnerPresence
from deltalakedb.cdc.source.slots import drop_slot
from deltalakedb.exceptions import CaptureRunningError
from deltalakedb.runtime import steps
from tests.cdc.conftest import Lake, Source
from tests.cdc.taking import create_shop, taking


def test_a_capture_that_runs_is_asked_and_one_that_does_not_is_marked_for_its_next_start(
    lake: Lake, source: Source
) -> None:
    create_shop(source)
    with taking(lake, source) as shop:
        capture, is_running = resnapshot(lake.catalog, shop.settings, ["orders"])
        assert not is_running
        with RunnerPresence(source.dsn, shop.settings.slot):
            asked, is_running = resnapshot(lake.catalog, shop.settings, ["items"])
        assert is_running
        assert {table.stage for table in asked.tables.values()} == {"pending"}
        assert asked.lsn == capture.lsn, "the slot is as good as it was"
        assert reload_capture(lake.catalog, shop.settings) == asked


def test_a_slot_is_not_made_anew_while_somebody_runs_the_capture(lake: Lake, source: Source) -> None:
    create_shop(source)
    with taking(lake, source) as shop:
        drop_slot(shop.conn, shop.settings.slot)
        with (
            RunnerPresence(source.dsn, shop.settings.slot),
            pytest.raises(CaptureRunningError, match="stop it first"),
        ):
            resnapshot(lake.catalog, shop.settings)
        assert reload_capture(lake.catalog, shop.settings) == shop.capture


def test_a_batch_that_was_begun_before_the_request_commits_and_the_request_stays(lake: Lake, source: Source) -> None:
    create_shop(source)
    with taking(lake, source) as shop:
        source.run("insert into orders values (1, 'one', 1)")
        asked: list[Capture] = []

        def ask(step: str) -> None:
            if step == "cdc.applied" and not asked:
                asked.append(request_resnapshot(lake.catalog, shop.settings, ["orders"], is_running=True))

        steps.observe(ask)
        done = shop.take()
        assert asked
        assert shop.rows("lake.orders")[0]["id"] == 1
        now = reload_capture(lake.catalog, shop.settings)
        assert now.lsn == done.capture.lsn
        assert now.tables["public.orders"].stage == "pending"


def test_a_request_is_made_again_on_top_of_progress_that_came_first(lake: Lake, source: Source) -> None:
    create_shop(source)
    with taking(lake, source) as shop, ThreadPoolExecutor(1) as pool:

        def note() -> Capture:
            capture = shop.capture
            for number in range(1, 30):
                capture = commit_progress(lake.catalog, capture, shop.capture.lsn + number)
            return capture

        noted = pool.submit(note)
        while not noted.done():
            request_resnapshot(lake.catalog, shop.settings, ["orders"], is_running=True)
        now = reload_capture(lake.catalog, shop.settings)
        assert now.lsn == noted.result().lsn
        assert now.tables["public.orders"].stage == "pending"


def test_what_somebody_asked_for_is_not_undone_by_what_the_runner_knew_before(lake: Lake, source: Source) -> None:
    create_shop(source)
    with taking(lake, source) as shop:
        asked = request_resnapshot(lake.catalog, shop.settings, ["orders"], is_running=True)
        with pytest.raises(CaptureChangedError, match="public.orders of the capture dl_source_.*_shop was changed"):
            stop_table(lake.catalog, shop.capture, "public.orders", "a reason", shop.capture.lsn)
        assert reload_capture(lake.catalog, shop.settings) == asked
        stopped = stop_table(lake.catalog, shop.capture, "public.items", "a reason", shop.capture.lsn)
        assert stopped.tables["public.items"].stage == "stopped"
        now = reload_capture(lake.catalog, shop.settings)
        assert {name: table.stage for name, table in now.tables.items()} == {
            "public.orders": "pending",
            "public.items": "stopped",
        }
