"""Tables ask for the smallest protocol that says what they use, as `deltalake`'s do."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from tests.api.both import Both, Library

Step = Callable[[Library], Any]
GENERATED = {"delta.generationExpression": "id + 1"}
LOCAL = pa.table({"id": [1], "at": pa.array([datetime(2024, 1, 1)], pa.timestamp("us"))})


def create(*kinds: tuple[str, dict[str, str]], **configuration: str) -> Step:
    def step(lib: Library) -> None:
        make = lib.find("schema.Field")
        fields = [make("id", "long"), *(make(f"c{n}", kind, metadata=about) for n, (kind, about) in enumerate(kinds))]
        lib.create(lib.module.Schema(fields), configuration=configuration)

    return step


def write(data: Any = None, **arguments: Any) -> Step:
    return lambda lib: lib.write({"id": [1]} if data is None else data, **arguments)


def properties(**given: str) -> Step:
    return lambda lib: lib.table().alter.set_table_properties({f"delta.{key}": value for key, value in given.items()})


def constrain(lib: Library) -> None:
    lib.table().alter.add_constraint({"positive": "id > 0"})


def feature(name: str, increase: bool = True) -> Step:
    return lambda lib: lib.table().alter.add_feature(
        getattr(lib.module.TableFeatures, name), allow_protocol_versions_increase=increase
    )


def add_column(kind: str) -> Step:
    return lambda lib: lib.table().alter.add_columns([lib.find("schema.Field")("new", kind)])


def local_rows(lib: Library) -> None:
    lib.write(LOCAL, mode="append", schema_mode="merge")


SAME: dict[str, list[Step]] = {
    "nothing": [create()],
    "change feed": [create(**{"delta.enableChangeDataFeed": "true"})],
    "change feed, off": [create(**{"delta.enableChangeDataFeed": "false"})],
    "append only": [create(**{"delta.appendOnly": "true"})],
    "column mapping": [create(**{"delta.columnMapping.mode": "name"})],
    "generated": [create(("long", GENERATED))],
    "an invariant": [create(("long", {"delta.invariants": '{"expression":{"expression":"id > 0"}}'}))],
    "local times": [create(("timestamp_ntz", {}))],
    "local times, append only": [create(("timestamp_ntz", {}), **{"delta.appendOnly": "true"})],
    "a write": [write(configuration={"delta.enableChangeDataFeed": "true"})],
    "a write of local times": [write(LOCAL)],
    "writer 4": [create(**{"delta.minWriterVersion": "4"})],
    "reader 2": [create(**{"delta.minReaderVersion": "2"})],
    "reader 2, writer 5": [create(**{"delta.minReaderVersion": "2", "delta.minWriterVersion": "5"})],
    "writer 6 by a write": [write(configuration={"delta.minWriterVersion": "6"})],
    "a constraint": [write(), constrain],
    "a constraint, then a feed": [write(), constrain, properties(enableChangeDataFeed="true")],
    "a feed, then a constraint": [write(), properties(enableChangeDataFeed="true"), constrain],
    "writer 4 later": [write(), properties(minWriterVersion="4")],
    "writer 2 after 4": [write(), properties(enableChangeDataFeed="true"), properties(minWriterVersion="2")],
    "local times later": [write(), add_column("timestamp_ntz")],
    "local times later, append only": [write(), properties(appendOnly="true"), add_column("timestamp_ntz")],
    "local times in rows": [write(), local_rows],
    "local times and a constraint": [write(LOCAL), constrain],
    **{f"feature {name}": [write(), feature(name)] for name in (
        "AppendOnly", "ChangeDataFeed", "CheckConstraints", "GeneratedColumns", "Invariants", "IdentityColumns",
        "ColumnMapping", "DeletionVectors", "TimestampWithoutTimezone", "V2Checkpoint", "DomainMetadata", "VariantType",
    )},
}  # fmt: skip

REFUSED: dict[str, list[Step]] = {
    **{f"{key} {value}": [create(**{f"delta.{key}": value})] for key, value in (
        ("minReaderVersion", "0"), ("minReaderVersion", "x"), ("minWriterVersion", "1"), ("minWriterVersion", "8"),
        ("enableChangeDataFeed", "maybe"),
    )},
    "reader 9 later": [write(), properties(minReaderVersion="9")],
    "a feature without leave": [write(), feature("AppendOnly", increase=False)],
    "a reader's feature without leave": [write(), feature("AppendOnly"), feature("DeletionVectors", increase=False)],
}  # fmt: skip

DIFFERENT: dict[str, tuple[list[Step], tuple[int, int, list[str] | None, list[str]]]] = {
    "deletion vectors": ([create(**{"delta.enableDeletionVectors": "true"})],
                         (3, 7, ["deletionVectors"], ["deletionVectors"])),
    "writer 7": ([create(**{"delta.minWriterVersion": "7"})], (1, 7, None, ["appendOnly", "invariants"])),
    "reader 3, writer 7": ([write(), properties(minReaderVersion="3", minWriterVersion="7")],
                           (3, 7, [], ["appendOnly", "invariants"])),
    "row tracking": ([write(), feature("RowTracking")], (1, 7, None, ["domainMetadata", "rowTracking"])),
    "a feed that was": (
        [write(), properties(enableChangeDataFeed="true"), properties(enableChangeDataFeed="false"), local_rows],
        (3, 7, ["timestampNtz"], ["changeDataFeed", "timestampNtz"]),
    ),
}  # fmt: skip
"""`deltalake` lists variantType, raises the reader or leaves out what a feature needs; and forgets what was used."""


def protocol(lib: Library) -> tuple[int, int, list[str] | None, list[str] | None]:
    found = lib.table().protocol()
    lists = [None if names is None else sorted(names) for names in (found.reader_features, found.writer_features)]
    return found.min_reader_version, found.min_writer_version, lists[0], lists[1]


def run(both: Both, name: str, steps: list[Step]) -> Both:
    pair = both.other(f"t_{'_'.join(''.join(c if c.isalnum() else ' ' for c in name).split())}")
    for step in steps:
        pair.same(step, warned=False)
    return pair


def test_the_protocol_is_the_smallest_that_says_it(anywhere: Both) -> None:
    for name, steps in SAME.items():
        pair = run(anywhere, name, steps)
        theirs, ours = (protocol(lib) for lib in pair.libraries)
        assert ours == theirs, name
        pair.same(lambda lib: lib.table().metadata().configuration, exactly=True)
    for name, steps in REFUSED.items():
        pair = run(anywhere, name, steps[:-1])
        pair.fails(steps[-1])
    with pytest.raises(anywhere.ours.find("exceptions.DeltaError"), match="minWriterVersion"):
        create(**{"delta.minReaderVersion": "3"})(anywhere.other("reader_3").ours)  # `deltalake` panics


def test_where_deltalake_lists_too_much_or_too_little_the_protocol_is_as_it_should_be(anywhere: Both) -> None:
    for name, (steps, expected) in DIFFERENT.items():
        pair = run(anywhere, name, steps)
        assert protocol(pair.ours) == expected, name
        assert protocol(pair.theirs) != expected, f"{name}: no difference any more"


def test_behind_the_fence_features_are_listed_and_a_detached_table_has_its_legacy_version_again(both: Both) -> None:
    both.write({"id": [1]})
    both.same(constrain)
    assert protocol(both.ours)[:2] == (1, 3)
    mirrored = deltalake.DeltaTable(str(both.ours.folder)).protocol()
    expected = {"appendOnly", "invariants", "checkConstraints", "deltalakedb"}
    assert (mirrored.min_reader_version, mirrored.min_writer_version) == (1, 7)
    assert set(mirrored.writer_features or ()) == expected
    both.same(local_rows)
    listed = {name for name in protocol(both.ours)[3] or () if name != "timestampNtz"}
    assert listed == {"checkConstraints"}, "what no version used is not listed"
    assert both.ours.catalog.validate("api.t").drift is None
    pair = run(both, "detached", [write(), constrain])
    pair.ours.catalog.detach_table("api.t_detached")
    last = max((pair.ours.folder / "_delta_log").glob("*.json"))
    (action,) = [json.loads(line)["protocol"] for line in last.read_text().splitlines() if "protocol" in line]
    assert action == {"minReaderVersion": 1, "minWriterVersion": 3}
    deltalake.write_deltalake(str(pair.ours.folder), pa.table({"id": [2]}), mode="append")


def test_where_the_first_versions_are_gone_all_that_a_legacy_version_stood_for_is_listed(on_paths: Both) -> None:
    """Nobody can prove that they did not use it (PROTOCOL.md, "Table Features for New and Existing Tables")."""
    lib = on_paths.ours
    lib.write({"id": [1]}, configuration={"delta.logRetentionDuration": "interval 0 days"})
    lib.write({"id": [2]}, mode="append")
    lib.table().create_checkpoint()
    lib.table().cleanup_metadata()
    local_rows(lib)
    assert protocol(lib) == (3, 7, ["timestampNtz"], ["appendOnly", "invariants", "timestampNtz"])
