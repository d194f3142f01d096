"""New copies by policy: of tables that have stopped, and of all tables when the slot is lost."""

import threading
from typing import Any

import pytest

from deltalakedb.cdc.run.configured import load_settings
from deltalakedb.cdc.run.report import CaptureReport
from deltalakedb.cdc.run.runner import Runner
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.source.postgres import connect
from deltalakedb.cdc.source.slots import drop_slot
from deltalakedb.exceptions import ConfigError, SlotLostError
from tests.cdc import judging
from tests.cdc.conftest import Lake, Source
from tests.cdc.local_jobs import LocalJobs
from tests.cdc.taking import create_shop


def once(lake: Lake, source: Source, **settings: Any) -> CaptureReport:
    asked = CaptureSettings(source.dsn, "shop", namespace="lake", copy_beside_bytes=0, **settings)
    jobs: Any = LocalJobs()
    return Runner(lake.catalog, asked, jobs, threading.Event()).run(once=True)


def check(lake: Lake, source: Source) -> None:
    settings = CaptureSettings(source.dsn, "shop", namespace="lake")
    judging.check_current(lake.catalog, source, judging.captured(lake.catalog, settings))


def test_a_table_that_stops_is_copied_anew_only_if_the_policy_says_so(lake: Lake, source: Source) -> None:
    create_shop(source)
    source.run("insert into orders select i, 'x', i from generate_series(1, 50) i")
    assert sorted(once(lake, source).copied) == ["public.items", "public.orders"]
    source.run("alter table orders alter column amount type text", "insert into orders values (100, 'new', 'much')")
    assert list(once(lake, source).stopped) == ["public.orders"]
    assert list(once(lake, source).stopped) == ["public.orders"]
    report = once(lake, source, resnapshot="tables")
    assert (report.copied, report.stopped) == (("public.orders",), {})
    check(lake, source)


def test_a_table_that_stops_again_and_again_is_left_alone(lake: Lake, source: Source) -> None:
    create_shop(source)
    once(lake, source)
    source.run("insert into orders values (1, 'one', 'NaN')")
    report = once(lake, source, resnapshot="tables")
    assert list(report.stopped) == ["public.orders"]
    assert "public.orders.amount" in report.stopped["public.orders"]


def test_a_lost_slot_is_made_anew_only_if_the_policy_says_so(lake: Lake, source: Source) -> None:
    create_shop(source)
    source.run("insert into orders select i, 'x', i from generate_series(1, 50) i")
    once(lake, source)
    with connect(source.dsn) as conn:
        drop_slot(conn, f"dl_{source.database}_shop")
    source.run("delete from orders where id > 20")
    for policy in ("never", "tables"):
        with pytest.raises(SlotLostError):
            once(lake, source, resnapshot=policy)
    assert sorted(once(lake, source, resnapshot="slot").copied) == ["public.items", "public.orders"]
    check(lake, source)


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match="never, tables, slot"):
        CaptureSettings("", "shop", resnapshot="always")


def test_the_settings_of_copies_are_read_like_all_others() -> None:
    given = {"source": "x", "publication": "shop", "copy_beside": "0", "copy_chunk": "8KB", "resnapshot": "slot"}
    found = load_settings(given)
    assert (found.copy_beside_bytes, found.chunk_pages, found.resnapshot) == (0, 1, "slot")
    with pytest.raises(ConfigError, match="at least 8KB"):
        load_settings({**given, "copy_chunk": "1KB"})
