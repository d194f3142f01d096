"""What the lake's tables cannot take: values that no partition can have, and copies that a commit refuses."""

import threading
from dataclasses import replace
from typing import Any

import pytest

from deltalakedb.cdc.apply.landing import Landing, propose_copy
from deltalakedb.cdc.copy.resnapshot import resnapshot
from deltalakedb.cdc.run.choice_changes import apply_choice
from deltalakedb.cdc.run.configured import load_settings
from deltalakedb.cdc.run.report import CaptureReport
from deltalakedb.cdc.run.runner import Runner
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.exceptions import InvalidCommitError
from tests.cdc import judging
from tests.cdc.conftest import Lake, Source
from tests.cdc.local_jobs import LocalJobs


def settings_of(source: Source, *columns: str) -> CaptureSettings:
    rules = [{"partition_by": list(columns)}] if columns else []
    return load_settings({"source": source.dsn, "publication": "shop", "namespace": "lake", "rules": rules})


def capture(lake: Lake, settings: CaptureSettings) -> CaptureReport:
    jobs: Any = LocalJobs()
    return Runner(lake.catalog, settings, jobs, threading.Event()).run(once=True)


def test_an_empty_text_stops_a_table_that_is_partitioned_by_it(source: Source, lake: Lake) -> None:
    """Delta has null and an empty text as one partition: rows with such a key would not be found again."""
    source.run(
        "create table cities (country text, id int, name text, primary key (country, id))",
        "create table old (country text primary key)",
        "create publication shop for all tables",
        "insert into cities values ('ch', 1, 'Bern')",
        "insert into old values ('')",
    )
    settings = settings_of(source, "country")
    source.run("alter table old add name text")  # one that is partitioned by all its columns is refused
    assert "public.old.country has an empty text" in capture(lake, settings).stopped["public.old"]
    source.run("insert into cities values ('', 2, 'nowhere'), ('fr', 3, 'Lyon')", "update cities set name = 'B'")
    told = capture(lake, settings).stopped["public.cities"]
    assert "public.cities.country has an empty text, which Delta cannot tell from null" in told
    other = settings_of(source)
    apply_choice(lake.catalog, other)
    resnapshot(lake.catalog, other)
    assert capture(lake, other).stopped == {}
    source.run("update cities set name = 'C'", "delete from cities where id = 3")
    capture(lake, other)
    judging.check_current(lake.catalog, source, judging.captured(lake.catalog, other))


@pytest.mark.parametrize("beside", ["64MB", "1"], ids=["small", "beside the stream"])
def test_a_copy_that_the_lake_refuses_stops_its_table_alone(
    source: Source, lake: Lake, beside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.run(
        "create table bad (id int primary key)",
        "create table good (id int primary key)",
        "create publication shop for all tables",
        "insert into bad values (1)",
        "insert into good values (1)",
    )

    def refuse(tx: Any, capture: Any, landing: Landing, *more: Any) -> None:
        if landing.table.source == "public.bad":
            raise InvalidCommitError("the commit is wrong")
        propose_copy(tx, capture, landing, *more)

    for place in ("apply.landing", "copy.publishing"):
        monkeypatch.setattr(f"deltalakedb.cdc.{place}.propose_copy", refuse)
    report = capture(lake, replace(settings_of(source), copy_beside_bytes=1 if beside == "1" else 64 << 20))
    assert report.copied == ("public.good",)
    assert report.stopped["public.bad"].startswith("the lake does not take its copy: the commit is wrong")
    assert [path.name for path in (lake.warehouse / "lake").glob("bad*/*/*.parquet")] == []
