"""Odd cases of planning, one by one, on every engine."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from deltalakedb.log.predicates.predicate import parse_predicate
from deltalakedb.log.protocol.actions import Action, AddFile, DeletionVector, Metadata, Protocol
from deltalakedb.log.schema.types import StructType, parse_schema
from deltalakedb.store import Store, candidates, planning
from deltalakedb.store.planning import PlannedFiles, plan
from tests.fixtures.planned import TableInStore, metadata_of, numbers, remove


def schema_of(**types: str) -> StructType:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
    return parse_schema(json.dumps({"type": "struct", "fields": fields}))


def stats(low: dict[str, Any], high: dict[str, Any], nulls: dict[str, int] | None = None, records: int = 10) -> str:
    counts = dict.fromkeys(low, 0) | (nulls or {})
    return json.dumps({"numRecords": records, "minValues": low, "maxValues": high, "nullCount": counts})


def add(number: int, stats_text: str | None, **partition: str | None) -> AddFile:
    return AddFile(f"{number}.parquet", partition, 1, 1, data_change=True, stats=stats_text)


def spread(count: int, width: int = 10) -> list[AddFile]:
    """Files that follow each other in x; y counts backwards and s is text in the order of x."""
    return [
        add(
            n,
            stats(
                {"x": n * width, "y": -n, "s": f"k{n:05d}"}, {"x": n * width + width - 1, "y": -n, "s": f"k{n:05d}~"}
            ),
        )
        for n in range(count)
    ]


XYS = schema_of(x="long", y="integer", s="string")


def create(store: Store, schema: StructType, files: Sequence[Action], partitions: Sequence[str] = ()) -> TableInStore:
    stored = TableInStore(store)
    stored.commit([Protocol(1, 2), metadata_of(schema, partitions), *files])
    return stored


def planned(stored: TableInStore, text: Any, **options: Any) -> PlannedFiles:
    opened = stored.open()
    schema = parse_schema(opened.metadata.schema_string)
    with stored.store.read() as conn:
        predicate = parse_predicate(text, schema, opened.metadata.partition_columns)
        return plan(conn, opened, predicate, **options)


def kept(stored: TableInStore, text: Any, **options: Any) -> set[int]:
    return numbers(planned(stored, text, **options).files.column("path").to_pylist())


def test_a_point_a_range_and_a_list_find_their_files(store: Store) -> None:
    stored = create(store, XYS, spread(300))
    assert kept(stored, "x = 1234") == {123}
    assert kept(stored, "x between 95 and 115") == {9, 10, 11}
    assert kept(stored, "x in (5, 1234, 2999, 5000)") == {0, 123, 299}
    assert kept(stored, "x <> 5 and x < 25") == {0, 1, 2}
    assert kept(stored, "s = 'k00123x'") == {123}
    assert kept(stored, "s like 'k0012%'") == set(range(120, 130))
    assert kept(stored, "x = 5 or y = -200 or s = 'k00007a'") == {0, 7, 200}
    assert kept(stored, "x > 50 and x > 2950 and y < 0") == {295, 296, 297, 298, 299}
    assert kept(stored, "x is null") == set()
    assert kept(stored, "x is not null") == set(range(300))
    assert kept(stored, None) == set(range(300))
    assert kept(stored, "false") == set()


def test_long_lists_are_planned_through_the_index_too(store: Store) -> None:
    stored = create(store, XYS, spread(400))
    values = list(range(3, 4000, 40))
    assert kept(stored, [("x", "in", values)]) == {value // 10 for value in values}
    assert kept(stored, [("x", "in", values), ("y", ">=", -50)]) == {value // 10 for value in values if value <= 509}
    texts = [f"k{n:05d}b" for n in range(0, 400, 4)]
    assert kept(stored, [("s", "in", texts)]) == set(range(0, 400, 4))
    assert kept(stored, [("y", ">=", -50), ("s", "in", texts)]) == set(range(0, 51, 4))
    assert kept(stored, [("x", "not in", list(range(100)))]) == set(range(400)), "a file is wider than a point"


@pytest.fixture
def _low_caps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting goes through all its rounds on a small table."""
    monkeypatch.setattr(candidates, "COUNT_CAPS", (2, 8, 100_000))


@pytest.mark.usefixtures("_low_caps")
def test_several_conditions_find_the_same_files_whichever_drives(store: Store) -> None:
    stored = create(store, XYS, spread(100))
    assert kept(stored, "x >= 300 and y >= -40") == set(range(30, 41))
    assert kept(stored, "x >= 100 and y >= -80 and s < 'k00020'") == set(range(10, 20))
    assert kept(stored, "(x >= 300 and y >= -40) or (s >= 'k00090' and x < 950)") == {*range(30, 41), *range(90, 95)}


def test_files_without_statistics_are_always_kept(store: Store) -> None:
    files = [*spread(5), add(5, None), add(6, "{not json"), add(7, '{"numRecords": 3}')]
    stored = create(store, XYS, files)
    for text in ("x = 12345", "s = 'zzz'", "x is null", "x = 12345 and y = 12345", "x = 1 and s = 'a'"):
        assert {5, 6, 7} <= kept(stored, text)


def test_all_null_columns_are_pruned_by_values_and_kept_by_nulls(store: Store) -> None:
    only_nulls = json.dumps({"numRecords": 4, "minValues": {}, "maxValues": {}, "nullCount": {"x": 4, "s": 4}})
    some_nulls = stats({"x": 1, "s": "a"}, {"x": 9, "s": "b"}, {"x": 2, "s": 1})
    no_nulls = stats({"x": 1, "s": "a"}, {"x": 9, "s": "b"})
    stored = create(store, XYS, [add(0, only_nulls), add(1, some_nulls), add(2, no_nulls)])
    for column, value in (("x", "5"), ("s", "'a'")):
        assert kept(stored, f"{column} = {value}") == {1, 2}
        assert kept(stored, f"{column} is null") == {0, 1}
        assert kept(stored, f"{column} is not null") == {1, 2}
        assert kept(stored, f"{column} is distinct from {value}") == {0, 1, 2}


def test_nan_may_hide_in_any_file_of_a_float_column(store: Store) -> None:
    stored = create(
        store, schema_of(g="double"), [add(0, stats({"g": 1.0}, {"g": 2.0})), add(1, stats({"g": 5.0}, {"g": 6.0}))]
    )
    assert kept(stored, "g > 10") == {0, 1}
    assert kept(stored, "g > 10 and g < 20") == set()
    assert kept(stored, "g < 3") == {0}
    assert kept(stored, "g = cast('NaN' as double)") == {0, 1}


def test_partitions_prune_exactly(store: Store) -> None:
    schema = schema_of(x="long", day="date", region="string")
    partitions = [("2026-01-01", "eu"), ("2026-01-01", "us"), ("2026-01-02", "eu"), (None, None), ("2026-01-02", "")]
    files = [add(n, stats({"x": n}, {"x": n}), day=day, region=region) for n, (day, region) in enumerate(partitions)]
    stored = create(store, schema, files, ["day", "region"])
    assert kept(stored, "day = '2026-01-02'") == {2, 4}
    assert kept(stored, "day > '2026-01-01'") == {2, 4}
    assert kept(stored, "region <> 'eu'") == {1}
    assert kept(stored, "region is null") == {3, 4}
    assert kept(stored, "region > 'eu' and day <= date '2026-01-01'") == {1}
    assert kept(stored, [("region", "=", "")]) == {3, 4}
    assert kept(stored, [("region", "in", ["us", None])]) == {1, 3, 4}


def test_a_column_added_later_does_not_prune_the_files_before_it(store: Store) -> None:
    stored = create(store, schema_of(x="long"), [add(n, stats({"x": n}, {"x": n})) for n in range(3)])
    both = schema_of(x="long", late="integer")
    later = [add(n, stats({"x": n, "late": n}, {"x": n, "late": n})) for n in range(3, 6)]
    stored.commit([metadata_of(both, ()), *later])
    assert kept(stored, "late = 4") == {0, 1, 2, 4}
    assert kept(stored, "late = 4 and x = 1") == {1}
    assert kept(stored, "x >= 0 and late = 4") == {0, 1, 2, 4}
    assert kept(stored, "late is null") == {0, 1, 2}


def test_a_column_that_changed_its_kind_does_not_prune_by_the_old_one(store: Store) -> None:
    stored = create(store, schema_of(v="string"), [add(0, stats({"v": "a"}, {"v": "b"}))])
    stored.commit([metadata_of(schema_of(v="long"), ()), add(1, stats({"v": 5}, {"v": 6}))])
    assert kept(stored, "v = 5") == {0, 1}
    assert kept(stored, "v = 7") == {0}
    stored.commit([metadata_of(schema_of(v="string"), ()), add(2, stats({"v": "x"}, {"v": "y"}))])
    assert kept(stored, "v = 'q'") == {0, 1}, "what was complete once is complete again only from here on"


def test_a_renamed_column_is_found_by_its_physical_name(store: Store) -> None:
    def mapped(name: str) -> Metadata:
        field = {
            "name": name,
            "type": "long",
            "nullable": True,
            "metadata": {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"},
        }
        schema = parse_schema(json.dumps({"type": "struct", "fields": [field]}))
        return metadata_of(schema, ())

    stored = TableInStore(store)
    stored.commit([Protocol(2, 5), mapped("before"), add(0, stats({"col-1": 1}, {"col-1": 2}))])
    stored.commit([mapped("After"), add(1, stats({"col-1": 5}, {"col-1": 6}))])
    assert kept(stored, "after = 2") == {0}
    assert kept(stored, "AFTER > 2") == {1}


def test_names_with_quotes_and_backslashes_are_found(store: Store) -> None:
    name = 'odd "name" \\ é.x'
    stored = create(
        store, schema_of(**{name: "long"}), [add(0, stats({name: 1}, {name: 2})), add(1, stats({name: 5}, {name: 6}))]
    )
    assert kept(stored, [(name, "=", 5)]) == {1}
    assert kept(stored, f"`{name}` < 3") == {0}


def test_deletion_vectors_and_loose_bounds_prune_by_what_they_still_say(store: Store) -> None:
    loose = json.dumps(
        {
            "numRecords": 10,
            "tightBounds": False,
            "minValues": {"x": 1},
            "maxValues": {"x": 9},
            "nullCount": {"x": 3, "y": 0},
        }
    )
    vector = DeletionVector("i", "abc", 4, 2)
    file = AddFile("0.parquet", {}, 1, 1, data_change=True, stats=loose, deletion_vector=vector)
    stored = create(store, XYS, [file])
    assert kept(stored, "x = 20") == set()
    assert kept(stored, "x = 5") == {0}
    assert kept(stored, "x is null") == {0}
    assert kept(stored, "y is null") == set()
    row = planned(stored, "x = 5").files.to_pylist()[0]
    assert json.loads(row["deletion_vector"])["pathOrInlineDv"] == "abc"


def test_removed_files_are_gone_and_older_versions_still_have_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "PAGE_ROWS", 7)
    stored = create(store, XYS, spread(20))
    stored.commit([remove(n) for n in range(0, 20, 2)])
    stored.commit([add(100, stats({"x": 0, "y": 0, "s": "k"}, {"x": 999, "y": 9, "s": "l"}))])
    assert kept(stored, "x < 60") == {1, 3, 5, 100}
    assert kept(stored, "x < 60", version=1) == {1, 3, 5}
    assert kept(stored, "x < 60", version=0) == {0, 1, 2, 3, 4, 5}
    assert kept(stored, "false", version=0) == set()
    before = planned(stored, "x < 60", version=0)
    assert (before.num_files, before.num_pruned) == (6, 14)
    now = planned(stored, "x < 60", version=2)
    assert (now.num_files, now.num_pruned) == (4, 7)


def test_only_the_columns_asked_for_travel(store: Store) -> None:
    stored = create(store, XYS, spread(20))
    found = planned(stored, "x = 55", columns=["path", "num_records", "file_id"])
    assert found.files.to_pylist() == [{"path": "5.parquet", "num_records": 10, "file_id": 5}]
    stored.commit([remove(0)])
    found = planned(stored, "x = 55", version=0, columns=["file_id", "path"])
    assert found.files.to_pylist() == [{"file_id": 5, "path": "5.parquet"}]


def test_a_plan_says_what_it_did(store: Store) -> None:
    stored = create(store, XYS, spread(50))
    found = planned(stored, "x >= 100 and s < 'k00020' and abs(y) = 3 and y is not null", explain=True)
    assert found.num_files == 10
    steps = {step.condition: step for step in found.steps}
    assert (steps["x in [100, inf]"].kept, steps["x in [100, inf]"].pruned) == (40, 10)
    assert steps["s in ['', 'k00020')"].kept == 20
    assert "filters" in steps["y is not null"].action
    text = found.explain()
    assert text.startswith("kept 10 of 50 files, pruned 40")
    assert "ABS(y) = 3" in text
    assert "can never be true" in planned(stored, "x = null").explain()


def test_a_column_without_bounds_is_said_to_have_none(store: Store) -> None:
    many = schema_of(**{f"c{n}": "long" for n in range(40)})
    stored = create(store, many, [add(0, stats({"c0": 1}, {"c0": 2}))])
    found = planned(stored, "c39 = 5")
    assert found.num_files == 1
    assert "c39 has no bounds" in found.explain()
