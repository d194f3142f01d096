"""Merges made at random, with clauses of every kind in any order, come to the same rows in both libraries."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.api.both import Both, Library

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


def clauses(random: Random) -> list[tuple[str, dict[str, Any]]]:
    """Some clauses of each kind; the order among the kinds does not matter, the order within one does."""
    made: list[tuple[str, dict[str, Any]]] = []
    for _ in range(random.randrange(3)):
        predicate = random.choice(ON_BOTH)
        made.append(random.choice([
            ("when_matched_update", {"updates": some(random, FROM_BOTH), "predicate": predicate}),
            ("when_matched_update_all", {"predicate": predicate, "except_cols": random.choice([None, ["f"]])}),
            ("when_matched_delete", {"predicate": predicate}),
        ]))  # fmt: skip
    for _ in range(random.randrange(3)):
        predicate = random.choice(ON_SOURCE)
        values = some(random, FROM_SOURCE, always=("id",))
        made.append(random.choice([
            ("when_not_matched_insert", {"updates": values, "predicate": predicate}),
            ("when_not_matched_insert_all", {"predicate": predicate}),
        ]))  # fmt: skip
    for _ in range(random.randrange(3)):
        predicate = random.choice(ON_TARGET)
        made.append(random.choice([
            ("when_not_matched_by_source_update", {"updates": some(random, FROM_TARGET), "predicate": predicate}),
            ("when_not_matched_by_source_delete", {"predicate": predicate}),
        ]))  # fmt: skip
    random.shuffle(made)
    return made


@pytest.mark.parametrize("partition_by", [[], ["p"]])
@pytest.mark.parametrize("seed", range(4))
def test_random_merges_come_to_the_same_rows(both: Both, seed: int, partition_by: list[str]) -> None:
    random = Random(f"{seed} {partition_by}")
    keys: list[int | None] = random.sample(list(KEYS), 8)
    both.seed(rows(random, keys[:3]), rows(random, keys[3:]), partition_by=partition_by)
    for _ in range(8):
        # Keys are unique: what several matches come to is told in test_merge.py.
        source = rows(random, random.sample([*KEYS, None, 20, 21], random.randrange(7)))
        condition, chosen = random.choice(CONDITIONS), clauses(random)

        def run(
            lib: Library, source: pa.Table = source, condition: str = condition, chosen: list[Any] = chosen
        ) -> dict[str, Any]:
            merger = lib.table().merge(source, condition, source_alias="s", target_alias="t")
            for name, arguments in chosen:
                merger = getattr(merger, name)(**arguments)
            metrics: dict[str, Any] = merger.execute()
            return {key: value for key, value in metrics.items() if "rows" in key}

        both.same(run, exactly=True)
        both.same_rows()
        both.same_version()
