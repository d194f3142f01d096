"""`dl cdc apply`: what a changed choice does to tables that are captured already, on a real Postgres."""

from pathlib import Path
from typing import Any

import pytest

from deltalakedb.cdc.control import CaptureChangedError, load_capture
from deltalakedb.cdc.run.choice_changes import apply_choice, plan_choice
from deltalakedb.cdc.run.following import ChangeFollower, Tally
from deltalakedb.cdc.run.opening import open_capture
from deltalakedb.cdc.run.presence import RunnerPresence
from deltalakedb.exceptions import CaptureError, CaptureRunningError, ConfigError
from tests.cdc.choosing import MASKS, SHOP, check_hidden, choosing, history, masked, rows, settings_from
from tests.cdc.conftest import Lake, Source


def test_apply_shows_what_changes_and_does_it(lake: Lake, source: Source, tmp_path: Path) -> None:
    source.run(*SHOP)
    before = settings_from('namespace = "lake"\ninclude = ["users", "hr.*"]\n', source, tmp_path)
    with choosing(lake, source, before) as capture:
        source.run("update users set name = 'name-x' where id = 1")
        capture.catch_up()
        after = settings_from(MASKS.replace('exclude = ["*.tmp_*"]', 'exclude = ["hr.*"]'), source, tmp_path)
        with pytest.raises(ConfigError, match="dl cdc apply"):
            open_capture(lake.catalog, capture.conn, after)
        assert plan_choice(lake.catalog, before).steps == ()
        plan = plan_choice(lake.catalog, after)
        assert {step.source: step.action for step in plan.steps} == {
            "hr.staff": "leave", "public.tmp_load": "capture", "public.users": "copy",
        }  # fmt: skip
        users = next(step for step in plan.steps if step.source == "public.users")
        assert "the column email: its mask was none and is hash" in users.why
        assert "the column phone is left out from now on" in users.why
        assert "dl vacuum" in users.notes[0]
        with RunnerPresence(source.dsn, "dl_shop"), pytest.raises(CaptureRunningError, match="key of the masks"):
            apply_choice(lake.catalog, after)
        capture.apply(after)
        assert capture.table("hr.staff").stage == "stopped"
        assert capture.table("public.users").stage == "pending"
        assert sorted(capture.copy()) == ["public.tmp_load", "public.users"]
        source.run("insert into users values (40, 'mail-40', 'call-40', 'name-40')", "insert into tmp_load values (1)")
        capture.catch_up()
        found = {row["id"]: row for row in rows(lake, "lake.users")}
        assert (found[1]["email"], found[40]["email"]) == (masked("mail-1"), masked("mail-40"))
        assert "phone" not in found[1]
        assert [row["after"]["email"] for row in rows(lake, "lake.users_changes")] == [masked("mail-40")]
        (aside,) = [name for name in lake.catalog.tables() if "users_changes_until_" in name]
        assert rows(lake, aside)[0]["after"]["email"] == "mail-1", "what was there is kept apart"
        assert rows(lake, "lake.tmp_load") == [{"id": 1}]
        # And back again.
        again = settings_from('namespace = "lake"\ninclude = ["users", "hr.*"]\n', source, tmp_path)
        assert {step.source: step.action for step in capture.apply(again).steps} == {
            "hr.staff": "copy", "public.tmp_load": "leave", "public.users": "copy",
        }  # fmt: skip
        assert sorted(capture.copy()) == ["hr.staff", "public.users"]
        assert {row["email"] for row in rows(lake, "lake.users")} >= {"mail-1", "mail-40"}


def test_apply_renames_tables_while_nobody_runs_the_capture(lake: Lake, source: Source, tmp_path: Path) -> None:
    source.run(*SHOP)
    base = 'namespace = "lake"\nexclude = ["*.tmp_*", "hr.*"]\n'
    with choosing(lake, source, settings_from(base, source, tmp_path)) as capture:
        route = '[[cdc.rules]]\nnamespace = "crm"\nname = "{table}_now"\nchanges_name = "{table}_log"\n'
        routed = settings_from(base + route, source, tmp_path)
        with RunnerPresence(source.dsn, "dl_shop"), pytest.raises(CaptureRunningError, match="dl cdc stop"):
            apply_choice(lake.catalog, routed)
        version = lake.catalog.table("lake.users").version()
        plan = capture.apply(routed)
        assert [(step.action, step.renames) for step in plan.steps] == [
            ("rename", (("lake.users", "crm.users_now"), ("lake.users_changes", "crm.users_log")))
        ]
        source.run("insert into users values (40)")
        assert capture.copy() == []
        capture.catch_up()
        assert len(rows(lake, "crm.users_now")) == 31
        assert len(rows(lake, "crm.users_log")) == 1
        assert lake.catalog.table("crm.users_now").version() > version, "it is the same table"
        lake.catalog.create_table("lake.users", "id int")
        taken = plan_choice(lake.catalog, settings_from(base, source, tmp_path))
        assert taken.problems == (
            "public.users: crm.users_now would become lake.users, and there is a table of that name",
        )


def test_apply_changes_layers_partitions_and_deletion_vectors_by_a_new_copy(
    lake: Lake, source: Source, tmp_path: Path
) -> None:
    source.run(*SHOP)
    base = 'namespace = "lake"\ninclude = "users"\n[[cdc.rules]]\n'
    with choosing(lake, source, settings_from(base + 'layers = "changes"\n', source, tmp_path)) as capture:
        assert "lake.users" not in lake.catalog.tables()
        for rule in (
            'partition_by = "country"',
            "column_mapping = true",
            'partition_by = "country"\ndeletion_vectors = false\nchange_data_feed = true',
            "buckets = 2",
            'layers = "current"',
            'layers = "both"',
        ):
            (step,) = capture.apply(settings_from(base + rule + "\n", source, tmp_path)).steps
            assert step.action == "copy", rule
            assert capture.copy() == ["public.users"]
            source.run("update users set country = country || 'x' where id = 1", "delete from users where id = 7")
            source.run("insert into users values (7, 'm', 'p', 'n', null, 'c7')")
            capture.catch_up()
            found = sorted((row["id"], row["country"]) for row in rows(lake, "lake.users"))
            assert found == sorted(source.run("select id, country from users")), rule
            if rule == "column_mapping = true":
                source.run("alter table users rename phone to call", "update users set call = 'new' where id = 2")
                capture.catch_up()
                assert "call" in rows(lake, "lake.users")[0]
                assert history(lake, "lake.users_changes")[-1]["after"]["call"] == "new"
        metadata = lake.catalog.table("lake.users").metadata()
        assert metadata.partition_columns == []
        assert metadata.configuration["delta.enableDeletionVectors"] == "false", "as the last rule left it"
        off = plan_choice(lake.catalog, settings_from(base + "column_mapping = false\n", source, tmp_path))
        assert "column_mapping cannot be switched off" in off.problems[0]


def test_a_batch_that_was_read_before_an_apply_is_not_committed_after_it(
    lake: Lake, source: Source, tmp_path: Path
) -> None:
    source.run(*SHOP)
    base = 'namespace = "lake"\ninclude = "users"\n'
    with choosing(lake, source, settings_from(base, source, tmp_path)) as capture:
        source.run("insert into users values (50, 'mail-50')")
        end = capture.capture.lsn + (1 << 20)
        read = capture.read()
        apply_choice(lake.catalog, settings_from(base + '[[cdc.rules]]\nmask = { email = "null" }\n', source, tmp_path))
        with pytest.raises(CaptureError, match="changed by dl cdc apply"):
            capture.commit(read, end)
        check_hidden(lake, {"mail-50": "an email"})


def test_a_runner_hears_of_an_apply_and_goes_on_with_what_it_says(lake: Lake, source: Source, tmp_path: Path) -> None:
    source.run(*SHOP)
    base = 'namespace = "lake"\ninclude = "users"\n'
    before = settings_from(base, source, tmp_path)
    with choosing(lake, source, before) as capture:
        spark: Any = None  # nothing is read
        follower = ChangeFollower(lake.catalog, before, spark, capture.conn, capture.capture, Tally())
        follower.check_requests()
        after = settings_from(base + '[[cdc.rules]]\nmask = { email = "null" }\n', source, tmp_path)
        with RunnerPresence(source.dsn, "dl_shop"):
            _, is_running = apply_choice(lake.catalog, after)
        assert is_running
        with pytest.raises(CaptureChangedError, match="dl cdc apply"):
            follower.check_requests()
        found = load_capture(lake.catalog, before)
        assert found is not None
        assert before.with_choice(found.choice) == after
