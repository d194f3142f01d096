"""Which tables and columns are captured, what is masked, where tables go and what they are, on a real Postgres."""

from pathlib import Path

import pytest

from deltalakedb.cdc.apply.upkeep import compact_if_due
from deltalakedb.cdc.copy.incremental import choose_small
from deltalakedb.cdc.decode.reading import TaskFailed
from deltalakedb.cdc.rule_parsing import parse_rules
from deltalakedb.cdc.run.opening import open_capture
from deltalakedb.exceptions import CaptureSetupError, ConfigError
from tests.cdc.choosing import KEY, MASKS, SHOP, check_hidden, choosing, history, masked, rows, settings_from
from tests.cdc.conftest import Lake, Source
from tests.cdc.local_jobs import beside

SECRETS = {"mail-": "an email", "call-": "a phone", "name-": "a name", "98765": "a salary", "private": "a note"}


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
