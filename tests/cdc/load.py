"""A seeded load of random transactions over five tables, in which money only ever moves between two of them."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from types import TracebackType
from typing import Any

import psycopg
from psycopg.rows import TupleRow

from tests.cdc.conftest import Source

PUBLICATION = "shop"
ACCOUNTS = ("checking", "savings")
OTHERS = ("orders", "documents", "events")
TABLES = (*ACCOUNTS, *OTHERS)
IDS = 25
"""Keys are few: most transactions meet rows of others, and keys come back after they were deleted."""
TOTAL = 2 * IDS * 1_000
REGIONS = ("north", "south", "east", "west")

_SCHEMA = """
create table checking (id bigint primary key, owner text, balance numeric(12, 2) not null);
create table savings (id bigint primary key, owner text, balance numeric(12, 2) not null);
create table orders (
    number int, amount numeric(10, 2), region text, tags text[], placed_at timestamptz, note text,
    primary key (region, number)
);
create table documents (id int primary key, title text, body text, rating float8, seen boolean, day date);
alter table documents alter body set storage external;
create table events (kind text, n int, payload text);
alter table events replica identity full;
alter table events alter payload set storage external;
create table noise (id bigint generated always as identity primary key, what text);
create publication shop for table checking, savings, orders, documents, events;
insert into checking select id, 'owner ' || id, 1000 from generate_series(1, 25) id;
insert into savings select id, 'owner ' || id, 1000 from generate_series(1, 25) id;
"""

Rows = psycopg.Cursor[TupleRow]
Action = Callable[[Rows, random.Random], None]


class Undo(Exception):
    """The transaction, or the part since its savepoint, is rolled back."""


def create_tables(source: Source) -> None:
    """The tables, one that is not published, and the money."""
    with source.connect(autocommit=False) as connection:
        for statement in _SCHEMA.split(";"):
            if statement.strip():
                connection.execute(statement.encode())


def fill(source: Source, rows: int) -> None:
    """Something for the first copy to do."""
    with source.connect(autocommit=False) as connection:
        connection.execute(
            "insert into orders select n, n / 7.0, (array['north', 'south', 'east', 'west'])[1 + n %% 4], "
            "array['old', null, n::text], now(), repeat('n', n %% 50) from generate_series(1, %s) n",
            [rows],
        )
        connection.execute(
            "insert into documents select n, 'title ' || n, repeat(n::text, case when n %% 10 = 0 then 900 end), "
            "n / 3.0, n %% 2 = 0, date '2026-01-01' + n %% 300 from generate_series(1, %s) n",
            [rows],
        )
        connection.execute("insert into events select 'old', n / 2, null from generate_series(1, %s) n", [rows])


# ---- what happens inside of transactions


def _sql(rows: Rows, text: str, *values: Any) -> int:
    return rows.execute(text.encode(), values).rowcount


def _must(changed: int) -> None:
    """Money was taken from one side: without the other side nothing has happened."""
    if changed != 1:
        raise Undo


def _sides(choices: random.Random) -> list[str]:
    return choices.sample(ACCOUNTS, 2)


def _id(choices: random.Random) -> int:
    return choices.randrange(1, 2 * IDS)


def _amount(choices: random.Random) -> Decimal:
    return Decimal(choices.randrange(1, 10_000)) / 100


def _large(choices: random.Random) -> str:
    return f"{choices.random()} " * choices.randrange(150, 400)


def transfer(rows: Rows, choices: random.Random) -> None:
    one, other = _sides(choices)
    amount = _amount(choices)
    _must(_sql(rows, f"update {one} set balance = balance - %s where id = %s", amount, _id(choices)))
    _must(_sql(rows, f"update {other} set balance = balance + %s where id = %s", amount, _id(choices)))


def open_account(rows: Rows, choices: random.Random) -> None:
    one, _ = _sides(choices)
    _sql(rows, f"insert into {one} values (%s, %s, 0) on conflict do nothing", _id(choices), "a new owner")


def close_account(rows: Rows, choices: random.Random) -> None:
    one, other = _sides(choices)
    _must(_sql(rows, f"delete from {one} where id = %s returning balance", _id(choices)))
    balance = rows.fetchall()[0][0]
    _must(_sql(rows, f"update {other} set balance = balance + %s where id = %s", balance, _id(choices)))


def renumber_account(rows: Rows, choices: random.Random) -> None:
    one, _ = _sides(choices)
    _sql(rows, f"update {one} set id = %s where id = %s", _id(choices), _id(choices))


def swap_accounts(rows: Rows, choices: random.Random) -> None:
    one, _ = _sides(choices)
    first, second = choices.sample(range(1, 2 * IDS), 2)
    for old, new in ((first, -first), (second, first), (-first, second)):
        _sql(rows, f"update {one} set id = %s where id = %s", new, old)


def rewrite_accounts(rows: Rows, choices: random.Random) -> None:
    """All rows leave by a truncate and come back in the same transaction."""
    one, _ = _sides(choices)
    _sql(rows, f"lock {one} in access exclusive mode")
    _sql(rows, f"select id, owner, balance from {one}")
    kept = rows.fetchall()
    _sql(rows, f"truncate {one}")
    rows.executemany(f"insert into {one} values (%s, %s, %s)".encode(), kept)


def place_order(rows: Rows, choices: random.Random) -> None:
    _sql(
        rows,
        "insert into orders values (%s, %s, %s, %s, now(), %s) on conflict (region, number) do update "
        "set amount = excluded.amount, tags = excluded.tags",
        _id(choices), _amount(choices), choices.choice(REGIONS),
        choices.choice([None, [], ["a", None, 'q"uo,te'], ["", "null"]]), choices.choice(["", None, _large(choices)]),
    )  # fmt: skip


def change_order(rows: Rows, choices: random.Random) -> None:
    _sql(rows, "update orders set amount = amount + 1 where number = %s", _id(choices))


def move_order(rows: Rows, choices: random.Random) -> None:
    old, new = choices.sample(REGIONS, 2)
    _sql(rows, "update orders set region = %s where region = %s and number = %s", new, old, _id(choices))


def cancel_orders(rows: Rows, choices: random.Random) -> None:
    _sql(rows, "delete from orders where number %% 7 = %s and number < 1000", choices.randrange(7))


def write_document(rows: Rows, choices: random.Random) -> None:
    _sql(
        rows,
        "insert into documents values (%s, %s, %s, %s, %s, %s) on conflict (id) do update set body = excluded.body",
        _id(choices), f"title {choices.random()}", choices.choice([None, "short", _large(choices)]),
        choices.choice([1.5, -0.0, float("inf"), None]), choices.random() < 0.5, "2026-02-28",
    )  # fmt: skip


def retitle_document(rows: Rows, choices: random.Random) -> None:
    """A large body is not sent with this update."""
    _sql(rows, "update documents set title = %s where id = %s", f"again {choices.random()}", _id(choices))


def see_documents(rows: Rows, choices: random.Random) -> None:
    _sql(rows, "update documents set seen = not seen where id %% 5 = %s and id < 1100", choices.randrange(5))


def renumber_document(rows: Rows, choices: random.Random) -> None:
    """Nor with this one, which changes the key."""
    _sql(rows, "update documents set id = %s where id = %s", _id(choices), _id(choices))


def delete_document(rows: Rows, choices: random.Random) -> None:
    _sql(rows, "delete from documents where id = %s", _id(choices))


def record_events(rows: Rows, choices: random.Random) -> None:
    """The same row several times: nothing tells its copies apart."""
    kind, n, payload = choices.choice("abc"), choices.randrange(4), choices.choice([None, "", _large(choices)])
    times = choices.randrange(1, 4)
    _sql(rows, "insert into events select %s, %s, %s from generate_series(1, %s::int)", kind, n, payload, times)


def change_one_event(rows: Rows, choices: random.Random) -> None:
    _sql(
        rows,
        "update events set n = n + 1 where ctid = (select ctid from events where kind = %s limit 1)",
        choices.choice("abc"),
    )


def change_events(rows: Rows, choices: random.Random) -> None:
    _sql(
        rows,
        "update events set kind = %s where n = %s and kind <> 'old'",
        *choices.choices("abc"),
        choices.randrange(4),
    )


def forget_events(rows: Rows, choices: random.Random) -> None:
    _sql(
        rows,
        "delete from events where ctid = any (array(select ctid from events where n = %s limit %s))",
        choices.randrange(6), choices.randrange(1, 4),
    )  # fmt: skip


def insert_many(rows: Rows, choices: random.Random) -> None:
    first = choices.randrange(10_000, 1_000_000)
    _sql(
        rows,
        "insert into orders (number, amount, region) select n, 1, 'bulk' from generate_series(%s::int, %s::int) n "
        "on conflict do nothing",
        first, first + choices.randrange(20, 100),
    )  # fmt: skip


def make_noise(rows: Rows, choices: random.Random) -> None:
    """Nothing of it is published."""
    _sql(rows, "insert into noise (what) values (%s)", str(choices.random()))


def truncate(rows: Rows, choices: random.Random) -> None:
    _sql(rows, f"truncate {', '.join(choices.sample(OTHERS, choices.randrange(1, 3)))}")


ACTIONS: dict[Action, int] = {
    transfer: 12, open_account: 4, close_account: 3, renumber_account: 4, swap_accounts: 3, place_order: 8,
    change_order: 4, move_order: 4, cancel_orders: 3, write_document: 7, retitle_document: 6, see_documents: 2,
    renumber_document: 5, delete_document: 3, record_events: 6, change_one_event: 4, change_events: 2,
    forget_events: 4, insert_many: 2, make_noise: 3,
}  # fmt: skip
TRUNCATES: dict[Action, int] = {rewrite_accounts: 1, truncate: 1}


# ---- transactions


class Load:
    """One client of the source; the same seed gives the same statements."""

    def __init__(
        self,
        source: Source,
        seed: int,
        *,
        truncates: bool = True,
        pause_seconds: float = 0.0,
        think_seconds: float = 0.0,
    ) -> None:
        self.source = source
        self.choices = random.Random(seed)
        self.truncates = truncates
        self.pause_seconds = pause_seconds
        self.think_seconds = think_seconds
        """Between the actions of a transaction: others begin and end meanwhile, and so do batches."""
        self.did: Counter[str] = Counter()
        self._name = f"load {seed}"

    def run(self, transactions: int, until: threading.Event | None = None) -> None:
        """So many transactions, or fewer when `until` is set; with a new connection after one is lost."""
        done = 0
        while done < transactions and not (until and until.is_set()):
            try:
                with self.source.connect(autocommit=False) as connection:
                    connection.execute("set deadlock_timeout = '20ms'")
                    connection.commit()
                    while done < transactions and not (until and until.is_set()):
                        self.transact(connection)
                        done += 1
                        time.sleep(self.pause_seconds)
            except psycopg.OperationalError:
                self.did["connections lost"] += 1
                time.sleep(0.2)

    def transact(self, connection: psycopg.Connection[TupleRow]) -> None:
        """One transaction of a few actions; some are rolled back, in part or as a whole."""
        try:
            with connection.transaction(), connection.cursor() as rows:
                for _ in range(self.choices.choice([1, 1, 2, 3, 5])):
                    self._act(connection, rows)
                    time.sleep(self.think_seconds)
                if self.choices.random() < 0.1:
                    raise Undo
            self.did["committed"] += 1
        except (Undo, psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation):
            self.did["rolled back"] += 1

    def _act(self, connection: psycopg.Connection[TupleRow], rows: Rows) -> None:
        actions = ACTIONS | TRUNCATES if self.truncates else ACTIONS
        [action] = self.choices.choices(list(actions), list(actions.values()))
        if self.choices.random() < 0.7:
            action(rows, self.choices)
        else:
            self._act_and_think_again(connection, rows, action)
        self.did[action.__name__] += 1

    def _act_and_think_again(self, connection: psycopg.Connection[TupleRow], rows: Rows, action: Action) -> None:
        """Inside a savepoint, to which half of them are rolled back."""
        try:
            with connection.transaction():
                action(rows, self.choices)
                if self.choices.random() < 0.5:
                    raise Undo
        except (Undo, psycopg.errors.UniqueViolation):
            self.did["back to a savepoint"] += 1


class Loads:
    """Several clients at once, in threads, until the block ends."""

    def __init__(self, loads: Sequence[Load]) -> None:
        self.loads = loads
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(load,), daemon=True) for load in loads]

    def __enter__(self) -> "Loads":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def committed(self) -> int:
        return sum(load.did["committed"] for load in self.loads)

    def wait_for(self, committed: int, seconds: float = 60) -> None:
        """Until so many more transactions are committed."""
        goal, deadline = self.committed + committed, time.monotonic() + seconds
        while self.committed < goal:
            self._check()
            assert time.monotonic() < deadline, f"the load stands still: {self.committed} of {goal}"
            time.sleep(0.02)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
        self._check()

    def _run(self, load: Load) -> None:
        try:
            load.run(1 << 62, self._stop)
        except BaseException as error:  # the test is told
            self._errors.append(error)

    def _check(self) -> None:
        if self._errors:
            raise AssertionError(f"the load failed: {self._errors[0]!r}") from self._errors[0]


def total(source: Source) -> int:
    """The money of both tables."""
    [[found]] = source.run("select (select sum(balance) from checking) + (select sum(balance) from savings)")
    return int(found)
