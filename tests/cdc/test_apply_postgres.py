"""What Postgres really sends of moved keys, values it keeps out of line, and rows without a key: batch by batch, the
tables of current rows are those of the source."""

import random
from contextlib import suppress

import psycopg
import pytest

from tests.cdc.conftest import Lake, Source
from tests.cdc.judging import check_current, check_replayed
from tests.cdc.taking import PUBLICATION, taking

TABLES = """
create table docs (id int primary key, body text, note text);
create table pairs (a text, body text, b int, primary key (a, b));
create table whole (id int primary key, body text, n float8);
create table bag (kind text, n float8, body text, tags text[]);
alter table docs alter body set storage external;
alter table pairs alter body set storage external;
alter table whole alter body set storage external, replica identity full;
alter table bag alter body set storage external, replica identity full
"""
# :k and :m are keys, :t a text that may be large.
STATEMENTS = [
    "insert into docs values (:k, :t, 'new') on conflict do nothing",
    "insert into docs select n, :t, null from generate_series(:k, :k + 3) n on conflict do nothing",
    "update docs set note = note || 'x' where id % 3 = :k % 3",
    "update docs set body = :t where id = :k",
    "update docs set id = id + 1000, note = 'moved' where id between :k and :k + 2",
    "update docs set id = id - 1000 where id > 1000 and id - 1000 not in (select id from docs)",
    "update docs set id = -1 where id = :k; update docs set id = :k where id = :m;"
    "update docs set id = :m where id = -1",
    "delete from docs where id = :k; insert into docs values (:k, null, :t) on conflict do nothing",
    "insert into pairs values ('a' || :k, :t, :m) on conflict do nothing",
    "update pairs set b = b + 100 where b = :m",
    "update pairs set a = 'z' || a where b = :m and length(a) < 6",
    "delete from pairs where a = 'a' || :k",
    "insert into whole values (:k, :t, 'nan') on conflict (id) do update set n = whole.n + 1",
    "update whole set id = id + 1000 where id = :k and not exists (select from whole where id = :k + 1000)",
    "update whole set body = :t where id = :k; update whole set n = null where id = :k",
    "insert into bag select 'k' || :k, 'nan', :t, array[null, 'x'] from generate_series(1, 3)",
    "insert into bag values (null, null, null, '{}'), (null, null, null, '{}')",
    "update bag set n = :k where kind = 'k' || :m",
    "delete from bag where ctid in (select ctid from bag order by kind nulls first, n limit 2)",
    "update bag set kind = 'same', n = 0 where n = :k",
    "truncate pairs; insert into pairs values ('a', :t, 1)",
    "truncate bag",
]


def statement(dice: random.Random) -> str:
    text = dice.choice(STATEMENTS if dice.random() < 0.9 else STATEMENTS[:-2])
    body = dice.choice(["small", "", "x" * 5000 + str(dice.random()), None])
    shown = "null" if body is None else f"'{body}'"
    return text.replace(":k", str(dice.randrange(12))).replace(":m", str(dice.randrange(12))).replace(":t", shown)


@pytest.mark.parametrize("seed", [1, 2])
def test_every_batch_leads_to_the_rows_of_the_source(lake: Lake, source: Source, seed: int) -> None:
    source.run(*TABLES.split(";"), f"create publication {PUBLICATION} for all tables")
    dice = random.Random(seed)
    with taking(lake, source) as stream, source.connect(autocommit=False) as connection:
        for _ in range(8):
            for _ in range(dice.randrange(1, 12)):
                for _ in range(dice.randrange(1, 5)):
                    # A key that is taken undoes the statement alone, as a savepoint does.
                    with suppress(psycopg.errors.UniqueViolation), connection.transaction():
                        connection.execute(statement(dice).encode())
                connection.rollback() if dice.random() < 0.1 else connection.commit()
            stream.take()
            check_current(lake.catalog, source, stream.capture)
        check_replayed(lake.catalog, source, stream.capture)
