"""Publications with a row filter: rows come and go by updates."""

from deltalakedb.cdc.source.peek import Stopped
from tests.cdc.conftest import Lake, Source, both_versions
from tests.cdc.taking import taking

LARGE = "(select string_agg(md5(i::text), '') from generate_series(1, 200) i)"


@both_versions
def test_a_row_that_comes_under_the_filter_without_its_large_value_stops_the_table(source: Source, lake: Lake) -> None:
    """Postgres sends such an update as an insert that lacks the value, and null would be wrong."""
    source.run(
        "create table notes (id int not null, is_public bool not null, body text)",
        "alter table notes alter body set storage external",
        "create unique index named on notes (id, is_public)",
        "alter table notes replica identity using index named",
        "create publication shop for table notes where (is_public)",
    )
    with taking(lake, source) as capture:
        source.run(f"insert into notes values (1, false, 'short'), (2, false, {LARGE})")
        source.run("update notes set is_public = true where id = 1")
        capture.take()
        assert [row["id"] for row in capture.rows("lake.notes")] == [1]
        source.run("update notes set is_public = true where id = 2")
        (stopped, _) = capture.read()
    assert isinstance(stopped, Stopped)
    assert "did not send its large value of body: alter table public.notes replica identity full" in stopped.reason


def test_with_the_whole_row_as_identity_the_large_value_comes_along(source: Source, lake: Lake) -> None:
    source.run(
        "create table notes (id int primary key, is_public bool not null, body text)",
        "alter table notes alter body set storage external",
        "alter table notes replica identity full",
        "create publication shop for table notes where (is_public)",
    )
    with taking(lake, source) as capture:
        source.run(f"insert into notes values (2, false, {LARGE})", "update notes set is_public = true")
        capture.take()
        assert [len(row["body"]) for row in capture.rows("lake.notes")] == [6400]
