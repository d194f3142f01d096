"""The source's server: sessions on it, what its failures are called, and the checks that it can be captured."""

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.source.postgres import check_source, connect, flush_lsn, identify, translate_errors
from deltalakedb.cdc.source.slots import create_slot
from deltalakedb.exceptions import CaptureSetupError, ConfigError, SourceUnavailableError
from tests.cdc.conftest import Source
from tests.fixtures.postgres import PostgresCluster


def settings_of(source: Source, publication: str = "shop") -> CaptureSettings:
    return CaptureSettings(source.dsn, publication)


def test_the_text_of_a_value_does_not_depend_on_what_the_database_or_the_role_prefer(source: Source) -> None:
    source.run(
        f"alter database {source.database} set datestyle = 'German'",
        f"alter database {source.database} set timezone = 'Asia/Tokyo'",
        f"alter database {source.database} set bytea_output = 'escape'",
        f"alter database {source.database} set extra_float_digits = -3",
        f"alter database {source.database} set statement_timeout = '1min'",
    )
    with connect(source.dsn) as conn:
        found = conn.execute(
            "select '2026-02-01'::date::text, '2026-02-01 12:00+00'::timestamptz::text, '\\x00ff'::bytea::text, "
            "(0.1::float8 + 0.2)::text, current_setting('statement_timeout'), current_setting('search_path')"
        ).fetchone()
    assert found == (
        "2026-02-01",
        "2026-02-01 12:00:00+00",
        "\\x00ff",
        "0.30000000000000004",
        "0",
        "pg_catalog",
    )


def test_a_replication_session_has_the_settings_too_and_takes_its_commands(source: Source) -> None:
    with connect(source.dsn, replication=True) as conn:
        system = conn.execute(b"IDENTIFY_SYSTEM").fetchone()
        assert conn.execute(b"show timezone").fetchone() == ("UTC",)
    with connect(source.dsn) as conn:
        server = identify(conn)
    assert system is not None
    assert (server.system_id, server.timeline, server.database) == (system[0], system[1], source.database)


def test_a_session_without_autocommit_begins_outside_of_a_transaction(source: Source) -> None:
    with connect(source.dsn, autocommit=False) as conn:
        assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        assert conn.execute("show timezone").fetchone() == ("UTC",)


def test_a_server_that_does_not_answer_is_unavailable_and_its_password_is_not_told() -> None:
    with pytest.raises(SourceUnavailableError, match="127.0.0.1:1/shop cannot be reached") as caught:
        connect("postgresql://me:s3cr3t@127.0.0.1:1/shop")
    assert "s3cr3t" not in str(caught.value)


def test_a_server_that_does_not_let_us_in_is_a_matter_of_set_up(source: Source) -> None:
    with pytest.raises(CaptureSetupError, match="does not let us in.*nowhere"):
        connect(make_conninfo(source.dsn, dbname="nowhere"))


def test_what_is_no_connection_string_is_refused() -> None:
    with pytest.raises(ConfigError, match="no connection string"):
        connect("host=a =b")


def test_a_session_that_is_ended_is_a_source_unavailable_and_other_errors_stay_what_they_are(source: Source) -> None:
    with connect(source.dsn) as conn:
        with pytest.raises(psycopg.errors.UndefinedTable), translate_errors():
            conn.execute("select * from nothing")
        source.run(f"select pg_terminate_backend({conn.info.backend_pid}, 5000)")
        with pytest.raises(SourceUnavailableError, match="the connection to the source broke"), translate_errors():
            conn.execute("select 1")
        with pytest.raises(SourceUnavailableError):
            flush_lsn(conn)


def test_the_flushed_end_of_the_log_moves_with_every_commit(source: Source) -> None:
    with connect(source.dsn) as conn:
        before = flush_lsn(conn)
        conn.execute("create table public.t (id int)")
        conn.execute("set synchronous_commit = on")
        conn.execute("insert into public.t values (1)")
        assert flush_lsn(conn) > before


def test_a_source_that_is_set_up_passes(source: Source) -> None:
    source.run("create table t (id int primary key)", "create publication shop for all tables")
    with connect(source.dsn) as conn:
        assert check_source(conn, settings_of(source)) is None  # type: ignore[func-returns-value]  # nothing is its answer


def test_a_log_without_logical_changes_is_refused(postgres_cluster: PostgresCluster) -> None:
    with (
        connect(postgres_cluster.dsn("postgres")) as conn,
        pytest.raises(CaptureSetupError, match="wal_level = replica.*alter system set wal_level = logical"),
    ):
        check_source(conn, CaptureSettings(postgres_cluster.dsn("postgres"), "shop"))


def test_a_missing_publication_is_named_with_those_there_are(source: Source) -> None:
    source.run("create publication other for all tables")
    with (
        connect(source.dsn) as conn,
        pytest.raises(CaptureSetupError, match='no publication Shop; there are other: create publication "Shop" for'),
    ):
        check_source(conn, settings_of(source, publication="Shop"))


def test_a_publication_that_leaves_out_deletes_is_refused(source: Source) -> None:
    source.run("create publication shop for all tables with (publish = 'insert, update')")
    with (
        connect(source.dsn) as conn,
        pytest.raises(CaptureSetupError, match="leaves out delete, truncate.*alter publication shop set"),
    ):
        check_source(conn, settings_of(source))


def test_a_role_that_may_not_replicate_is_told_how_to(source: Source) -> None:
    role = f"reader_{source.database}"
    source.run("create publication shop for all tables", f"create role {role} login")
    try:
        with (
            connect(make_conninfo(source.dsn, user=role)) as conn,
            pytest.raises(CaptureSetupError, match=f"alter role {role} replication"),
        ):
            check_source(conn, settings_of(source))
        source.run(f"alter role {role} replication")
        with connect(make_conninfo(source.dsn, user=role)) as conn:
            check_source(conn, settings_of(source))
            assert create_slot(conn, f"own_{source.database}") > 0
    finally:
        source.drop_slots()
        source.run(f"drop role {role}")


def test_a_server_whose_slots_are_all_in_use_is_refused(source: Source) -> None:
    source.run("create publication shop for all tables")
    with connect(source.dsn) as conn:
        (most, used), *_ = source.run(
            "select current_setting('max_replication_slots')::int, count(*)::int from pg_replication_slots"
        )
        names = [f"taken_{place}" for place in range(most - used - 1)]
        try:
            for name in names:
                conn.execute(sql.SQL("select pg_create_physical_replication_slot({})").format(name))
            with pytest.raises(CaptureSetupError, match="needs 2 more.*pg_drop_replication_slot"):
                check_source(conn, settings_of(source))
            conn.execute(sql.SQL("select pg_drop_replication_slot({})").format(names[0]))
            assert create_slot(conn, settings_of(source).slot) > 0
            check_source(conn, settings_of(source))
        finally:
            conn.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_type = 'physical'"
            )
