"""Which tables and columns are captured, what is masked, where tables go and what they are, on a real Postgres."""

from pathlib import Path
from typing import Any

import pytest

from deltalakedb.cdc.apply.upkeep import compact_if_due
from deltalakedb.cdc.control import CaptureChangedError, load_capture
from deltalakedb.cdc.copy.incremental import choose_small
from deltalakedb.cdc.decode.reading import TaskFailed
from deltalakedb.cdc.rule_parsing import parse_rules
from deltalakedb.cdc.run.choice_changes import apply_choice, plan_choice
from deltalakedb.cdc.run.following import ChangeFollower, Tally
from deltalakedb.cdc.run.opening import open_capture
from deltalakedb.cdc.run.presence import RunnerPresence
from deltalakedb.exceptions import CaptureError, CaptureRunningError, CaptureSetupError, ConfigError
from tests.cdc.choosing import KEY, check_hidden, choosing, masked, rows, settings_from
from tests.cdc.conftest import Lake, Source
from tests.cdc.local_jobs import beside

SHOP = (
    "create schema hr",
    "create table users (id int primary key, email text, phone text, name text, born date, country text)",
    "insert into users select n, 'mail-' || n, 'call-' || n, 'name-' || n, date '2000-01-01' + n, 'c' || n % 3 "
    "from generate_series(1, 30) n",
    "create table hr.staff (id int primary key, salary int, note text)",
    "insert into hr.staff values (1, 987650001, 'private-1'), (2, null, null)",
    "create table tmp_load (id int primary key)",
    "create publication shop for all tables",
)
MASKS = """
namespace = "lake"
exclude = ["*.tmp_*"]

[[cdc.rules]]
tables = "users"
exclude_columns = ["phone"]
mask = { email = "hash", name = { constant = "somebody" }, born = "null" }

[[cdc.rules]]
tables = "hr.*"
namespace = "people.{schema}"
name = "{table}_now"
mask = { salary = { constant = 0 } }
exclude_columns = "no*"
"""
SECRETS = {"mail-": "an email", "call-": "a phone", "name-": "a name", "98765": "a salary", "private": "a note"}


def history(lake: Lake, name: str) -> list[dict[str, Any]]:
    """The changes of a table in their order."""
    return sorted(rows(lake, name), key=lambda row: (row["_lsn"], row["_ordinal"]))


def secrets(*kinds: str) -> dict[str, str]:
    return {value: what for value, what in SECRETS.items() if not kinds or what in kinds}


def test_masked_and_excluded_columns_are_in_no_file_whether_copied_or_streamed(
    lake: Lake, source: Source, tmp_path: Path
) -> None:
    source.run(*SHOP)
    with choosing(lake, source, settings_from(MASKS, source, tmp_path)) as capture:
        assert sorted(lake.catalog.tables()) == [
            "lake.cdc_dl_shop",
            "lake.users",
            "lake.users_changes",
            "people.hr.staff_now",
            "people.hr.staff_now_changes",
        ]
        source.run(
            "insert into users values (31, 'mail-31', 'call-31', 'name-31', '2020-01-01', 'c1')",
            "insert into users values (32)",
            "update users set email = 'mail-new', name = 'name-new' where id = 1",
            "update users set phone = 'call-new' where id = 2",
            "update users set id = 100 where id = 3",
            "delete from users where id = 4",
            "insert into hr.staff values (3, 987650003, 'private-3')",
            "update hr.staff set salary = 987650004 where id = 1",
        )
        capture.catch_up()
        found = {row["id"]: row for row in rows(lake, "lake.users")}
        assert set(found[1]) == {"id", "email", "name", "born", "country"}
        assert found[1] == {
            "id": 1, "email": masked("mail-new"), "name": "somebody", "born": None, "country": "c1",
        }  # fmt: skip
        assert found[5]["email"] == masked("mail-5"), "copied"
        assert found[31]["email"] == masked("mail-31"), "streamed"
        assert found[100]["email"] == masked("mail-3"), "moved"
        assert found[32] == dict.fromkeys(found[1], None) | {"id": 32}, "a null stays null"
        assert 4 not in found
        staff = {row["id"]: row["salary"] for row in rows(lake, "people.hr.staff_now")}
        assert staff == {1: 0, 2: None, 3: 0}
        changes = rows(lake, "lake.users_changes")
        assert {row["after"]["email"] for row in changes if row["_op"] == "insert"} == {masked("mail-31"), None}
        check_hidden(lake, secrets())


def test_a_key_may_be_masked_by_a_hash_and_its_rows_are_still_found(lake: Lake, source: Source, tmp_path: Path) -> None:
    source.run(
        "create table people (ssn text primary key, age int)",
        "create table visits (ssn text, day date)",
        "alter table visits replica identity full",
        "insert into people values ('secret-1', 10), ('secret-2', 20)",
        "insert into visits values ('secret-1', '2026-01-01'), ('secret-1', '2026-01-01'), ('secret-2', null)",
        "create publication shop for all tables",
    )
    rule = '[[cdc.rules]]\nmask = { ssn = "hash" }\nnamespace = "lake"\n'
    with choosing(lake, source, settings_from(rule, source, tmp_path)) as capture:
        source.run(
            "update people set age = 11 where ssn = 'secret-1'",
            "update people set ssn = 'secret-3' where ssn = 'secret-2'",
            "insert into people values ('secret-4', 40), ('secret-5', 50)",
            "delete from people where ssn = 'secret-4'",
            "delete from visits where ctid = (select min(ctid) from visits)",
            "update visits set day = '2026-02-02' where day is null",
        )
        capture.catch_up()
        found = {row["ssn"]: row["age"] for row in rows(lake, "lake.people")}
        assert found == {masked("secret-1"): 11, masked("secret-3"): 20, masked("secret-5"): 50}
        visits = sorted((row["ssn"], str(row["day"])) for row in rows(lake, "lake.visits"))
        assert visits == sorted([(masked("secret-1"), "2026-01-01"), (masked("secret-2"), "2026-02-02")])
        check_hidden(lake, {"secret-": "a key"})


def test_another_key_of_the_masks_is_refused(lake: Lake, source: Source, tmp_path: Path) -> None:
    source.run(*SHOP)
    with choosing(lake, source, settings_from(MASKS, source, tmp_path)) as capture:
        other = settings_from(MASKS, source, tmp_path, key=KEY + " no more")
        with pytest.raises(ConfigError, match="dl cdc apply"):
            open_capture(lake.catalog, capture.conn, other)
        capture.settings = other
        source.run("update users set email = 'mail-x' where id = 1")
        failed = [one.message for one in capture.read() if isinstance(one, TaskFailed)]
        assert "its key is not the one that the capture was begun with" in failed[0]


def test_columns_that_come_and_are_renamed_stay_hidden(lake: Lake, source: Source, tmp_path: Path) -> None:
    source.run(
        "create table users (id int primary key, email text, phone text, name text)",
        "insert into users values (1, 'mail-1', 'call-1', 'one')",
        "create publication shop for all tables",
    )
    rules = """
namespace = "lake"
column_mapping = true

[[cdc.rules]]
mask = { "*mail*" = "hash" }
exclude_columns = "phone*"
"""
    with choosing(lake, source, settings_from(rules, source, tmp_path)) as capture:
        source.run(
            "alter table users add column mail2 text default 'mail-default'",
            "alter table users add column phone2 text default 'call-default'",
            "alter table users rename email to contact",
            "alter table users rename phone to number",
            "insert into users values (2, 'mail-2', 'call-2', 'two', 'mail-22', 'call-22')",
        )
        capture.settle()
        found = {row["id"]: row for row in rows(lake, "lake.users")}
        assert found[1] == {"id": 1, "contact": masked("mail-1"), "name": "one", "mail2": masked("mail-default")}
        assert found[2] == {"id": 2, "contact": masked("mail-2"), "name": "two", "mail2": masked("mail-22")}
        source.run("alter table users drop column phone2", "update users set name = 'three' where id = 2")
        capture.settle()
        assert capture.table("public.users").stage == "streaming"
        check_hidden(lake, {"mail-": "an email", "call-": "a phone"})
        source.run("alter table users rename name to email2", "insert into users values (3, 'x', 'y', 'z', 'w')")
        capture.settle()
        stopped = capture.table("public.users")
        assert stopped.stage == "stopped"
        assert "is called email2 now, which the settings mask" in (stopped.reason or "")


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ('exclude_columns = "id"', "id is part of its key, and the settings leave it out"),
        ('mask = { id = "null" }', 'only mask = "hash" does'),
        ('mask = { born = { constant = "soon" } }', "masked by constant 'soon', which is no value of date"),
        ('exclude_columns = "*"', "leave out all of its columns"),
        ('partition_by = "contry"', "no column matches contry of partition_by"),
        ('partition_by = "phone"\nexclude_columns = "phone"', "no column phone that is captured"),
        ('mask = { emial = "hash" }', "no column matches emial of mask"),
        ('name = "cdc_dl_shop"', "the capture's control table"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_captured(
    lake: Lake, source: Source, tmp_path: Path, rule: str, reason: str
) -> None:
    source.run(*SHOP)
    settings = settings_from(f'namespace = "lake"\n[[cdc.rules]]\ntables = "users"\n{rule}\n', source, tmp_path)
    with pytest.raises(CaptureSetupError) as refused, choosing(lake, source, settings):
        pass
    assert reason in str(refused.value)


def test_tables_have_the_layers_partitions_and_properties_that_rules_say(
    lake: Lake, source: Source, tmp_path: Path
) -> None:
    source.run(
        *(f"create table {name} (id int primary key, country text, note text)" for name in "abcd"),
        *(
            f"insert into {name} select n, 'c' || n % 3, 'n' from generate_series(1, 9) n"
            for name in ("a", "b", "c", "d")
        ),
        "create publication shop for all tables",
    )
    rules = """
namespace = "lake"
optimize_files = 2

[[cdc.rules]]
tables = "a"
layers = "changes"

[[cdc.rules]]
tables = "b"
layers = "current"
change_data_feed = true

[[cdc.rules]]
tables = "c"
partition_by = "country"
deletion_vectors = false

[[cdc.rules]]
tables = "d"
cluster_by = ["country", "id"]
column_mapping = true
"""
    with choosing(lake, source, settings_from(rules, source, tmp_path)) as capture:
        tables = [name for name in lake.catalog.tables() if "cdc_" not in name]
        assert sorted(tables) == ["lake.a_changes", "lake.b", "lake.c", "lake.c_changes", "lake.d", "lake.d_changes"]
        for name in ("a", "b", "c", "d"):
            source.run(
                f"insert into {name} values (10, 'c1', 'new')",
                f"update {name} set country = 'c7' where id = 1",
                f"delete from {name} where id = 2",
            )
            capture.catch_up()
        source.run(*(f"alter table {name} add column more int" for name in ("a", "b", "c", "d")))
        source.run(*(f"insert into {name} values (11, 'c1', 'new', 5)" for name in ("a", "b", "c", "d")))
        capture.settle()
        assert [row["_op"] for row in history(lake, "lake.a_changes")] == ["insert", "update", "delete", "insert"]
        expected = sorted(source.run("select id, country, note, more from a"))
        for name in ("b", "c", "d"):
            found = sorted((r["id"], r["country"], r["note"], r["more"]) for r in rows(lake, f"lake.{name}"))
            assert found == expected, name
        assert not list((lake.warehouse / "lake" / "b" / "changes").glob("*")), "what passed through is gone"
        metadata = {name: lake.catalog.table(f"lake.{name}").metadata() for name in ("b", "c", "d")}
        assert metadata["c"].partition_columns == ["country"]
        assert metadata["c"].configuration.get("delta.enableDeletionVectors") is None
        assert metadata["b"].configuration["delta.enableChangeDataFeed"] == "true"
        assert metadata["d"].configuration["delta.columnMapping.mode"] == "name"
        assert compact_if_due(lake.catalog, capture.capture, capture.settings)
        assert any(entry["operation"] == "OPTIMIZE" for entry in lake.catalog.history("lake.d"))
        assert sorted((r["id"], r["country"], r["note"], r["more"]) for r in rows(lake, "lake.d")) == expected


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


def test_a_large_value_that_an_update_does_not_send_stays_masked(lake: Lake, source: Source, tmp_path: Path) -> None:
    source.run(
        "create table letters (id int primary key, body text, other text, n int)",
        "alter table letters alter body set storage external, alter other set storage external",
        "insert into letters select i, repeat('secret-' || i, 2000), repeat('hidden-' || i, 2000), 0 "
        "from generate_series(1, 3) i",
        "create publication shop for all tables",
    )
    rules = 'namespace = "lake"\n[[cdc.rules]]\nmask = { body = "hash" }\nexclude_columns = "other"\n'
    with choosing(lake, source, settings_from(rules, source, tmp_path)) as capture:
        source.run(
            "insert into letters values (4, repeat('secret-4', 2000), repeat('hidden-4', 2000), 0)",
            "update letters set n = 1",
            "update letters set id = 20 where id = 2",
            "alter table letters replica identity full",
            "update letters set n = 2 where id in (1, 4)",
        )
        capture.catch_up()
        found = {row["id"]: (row["body"], row["n"]) for row in rows(lake, "lake.letters")}
        assert found == {
            number: (masked(f"secret-{text}" * 2000), n)
            for number, text, n in ((1, 1, 2), (20, 2, 1), (3, 3, 1), (4, 4, 2))
        }
        unsent = [row["_unchanged"] for row in rows(lake, "lake.letters_changes")]
        assert ["body"] in unsent
        assert not any("other" in (names or ()) for names in unsent), "what is left out is not even named"
        check_hidden(lake, {"secret-": "a letter", "hidden-": "another one"})


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


def test_what_is_copied_beside_the_stream_is_masked_too(lake: Lake, source: Source) -> None:
    source.run(
        "create table letters (ssn text primary key, n int, pad text, body text, other text)",
        "alter table letters alter body set storage external",
        "insert into letters select 'secret-' || i, 0, repeat('p', 700), repeat('secret-' || i, 400), 'hidden-' || i "
        "from generate_series(1, 40) i",
        "create table events (id int primary key, note text)",
        "insert into events values (1, 'hidden-0')",
        "create publication shop for all tables",
    )
    rules = parse_rules(
        [
            {"mask": {"ssn": "hash", "body": "hash", "note": "null"}, "exclude_columns": ["oth*"]},
            {"tables": "letters", "layers": "current"},
            {"tables": "events", "layers": "changes"},
        ]
    )
    with beside(lake, source, rules=rules, mask_key=KEY) as made:
        once = iter(range(1000))

        def change() -> None:
            if next(once) == 3:  # a large value is not sent again, and its row is on a page that was not read
                source.run(
                    "update letters set n = n + 1 where ssn >= 'secret-2'",
                    "update letters set ssn = 'secret-99' where ssn = 'secret-39'",
                    "insert into letters values ('secret-50', 5, 'p', 'secret-50', 'hidden-50')",
                    "delete from letters where ssn = 'secret-7'",
                )

        made.jobs.before_part = change
        pending = [table.source for table in made.follower.capture.tables.values()]
        chosen = choose_small(made.follower.conn, made.follower.capture, pending, 0)
        assert chosen == {"public.events"}, "of changes alone nothing is read"
        for _ in range(5):
            made.begin()
            if made.finish():
                break
        assert made.follower.capture.tables["public.letters"].stage == "streaming"
        assert made.follower.capture.tables["public.events"].stage == "pending", "it is not copied beside the stream"
        expected = {masked(ssn): (n, masked(body)) for ssn, n, body in source.run("select ssn, n, body from letters")}
        assert {row["ssn"]: (row["n"], row["body"]) for row in rows(lake, "lake.letters")} == expected
        assert "lake.letters_changes" not in lake.catalog.tables()
        check_hidden(lake, {"secret-": "a key or a letter", "hidden-": "what is left out"})
