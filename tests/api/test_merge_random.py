"""Merges made at random, with clauses of every kind in any order, come to the same rows in both libraries."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from tests.api.both import Both, Library
from tests.fixtures.sizes import sized

Clause: TypeAlias = tuple[str, dict[str, Any]]

SEEDS = range(sized(2, 30))
STEPS = sized(5, 7)
KEYS = range(12)
WORDS = ["a", "b", "c", None]
SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("n", pa.int64()), ("f", pa.float64())])
CONDITIONS = [
    "t.id = s.id",
    "s.id = t.id and t.p = s.p",
    "t.id = s.id and t.n > 3",
    "t.id = s.id and s.n < 8",
    "t.id = s.id and t.p in ('a', 'b')",
    "t.id is not distinct from s.id",
]
ON_BOTH = [None, "s.n > t.n", "t.p = 'a'", "s.p is null", "s.f < 3 or t.n = 2"]
ON_SOURCE = [None, "s.n > 4", "s.p = 'b'", "s.p is not null"]
ON_TARGET = [None, "t.n > 4", "t.p = 'b'", "t.p is not null", "t.f >= 2"]
FROM_BOTH = {"p": ["s.p", "'u'", "t.p", "concat(s.p, t.p)"], "n": ["s.n + t.n", "s.n", "0"], "f": ["s.f * 2", "t.f"]}
FROM_SOURCE = {"id": ["s.id"], "p": ["s.p", "upper(s.p)"], "n": ["s.n", "s.n * 10"], "f": ["s.f", "NULL"]}
FROM_TARGET = {"p": ["'gone'", "t.p"], "n": ["t.n + 100", "-1"], "f": ["t.f / 2"]}


def rows(random: Random, keys: list[int | None]) -> pa.Table:
    made = [
        {"id": key, "p": random.choice(WORDS), "n": random.randrange(10), "f": random.randrange(10) / 2} for key in keys
    ]
    return pa.Table.from_pylist(made, schema=SCHEMA)


def some(random: Random, choices: dict[str, list[str]], *, always: tuple[str, ...] = ()) -> dict[str, str]:
    return {name: random.choice(texts) for name, texts in choices.items() if name in always or random.random() < 0.6}


def clauses(random: Random) -> list[Clause]:
    """Some clauses of each kind; the order among the kinds does not matter, the order within one does."""
    made: list[Clause] = []
    for kind in (_matched, _not_matched, _not_matched_by_source):
        made += [random.choice(kind(random)) for _ in range(random.randrange(3))]
    random.shuffle(made)
    return made


def _matched(random: Random) -> list[Clause]:
    predicate = random.choice(ON_BOTH)
    return [
        ("when_matched_update", {"updates": some(random, FROM_BOTH), "predicate": predicate}),
        ("when_matched_update_all", {"predicate": predicate, "except_cols": random.choice([None, ["f"]])}),
        ("when_matched_delete", {"predicate": predicate}),
    ]


def _not_matched(random: Random) -> list[Clause]:
    predicate, values = random.choice(ON_SOURCE), some(random, FROM_SOURCE, always=("id",))
    return [
        ("when_not_matched_insert", {"updates": values, "predicate": predicate}),
        ("when_not_matched_insert_all", {"predicate": predicate}),
    ]


def _not_matched_by_source(random: Random) -> list[Clause]:
    predicate, values = random.choice(ON_TARGET), some(random, FROM_TARGET)
    return [
        ("when_not_matched_by_source_update", {"updates": values, "predicate": predicate}),
        ("when_not_matched_by_source_delete", {"predicate": predicate}),
    ]


@pytest.mark.parametrize("kind", ["plain", "partitioned", "vectors and feed"])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_merges_come_to_the_same_rows(both: Both, seed: int, kind: str) -> None:
    random = Random(f"{seed} {kind}")
    keys: list[int | None] = random.sample(list(KEYS), 8)
    feed, partition_by = kind == "vectors and feed", ["p"] if kind == "partitioned" else []
    both.seed(
        rows(random, keys[:3]),
        rows(random, keys[3:]),
        partition_by=partition_by,
        configuration={"delta.enableChangeDataFeed": "true"} if feed else {},
        ours_only={"delta.enableDeletionVectors": "true"} if feed else {},
    )
    for _ in range(STEPS):
        # Keys are unique: what several matches come to is told in test_merge.py.
        source = rows(random, random.sample([*KEYS, None, 20, 21], random.randrange(7)))
        run = merging(source, random.choice(CONDITIONS), clauses(random), all_metrics=not feed)
        both.same(run, exactly=True)
        both.same_rows()
        both.same_version()
    if feed:
        both.same(changes)


def merging(source: pa.Table, condition: str, chosen: list[Clause], *, all_metrics: bool) -> Callable[[Library], Any]:
    def run(lib: Library) -> dict[str, Any]:
        merger = lib.table().merge(source, condition, source_alias="s", target_alias="t")
        for name, arguments in chosen:
            merger = getattr(merger, name)(**arguments)
        metrics: dict[str, Any] = merger.execute()
        # deletion vectors copy no row
        return {
            key: value
            for key, value in metrics.items()
            if "_rows_" in key and (all_metrics or not key.endswith("copied"))
        }

    return run


def changes(lib: Library) -> pa.Table:
    feed = pa.RecordBatchReader.from_stream(lib.table().load_cdf(starting_version=2)).read_all()
    return feed.drop_columns(["_commit_timestamp"])
