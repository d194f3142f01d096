"""Checkpoints say what the commits say: to our own reader, to `deltalake`, Polars, DuckDB and Spark, unmodified."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from deltalakedb.exceptions import MirrorError
from deltalakedb.files import FileSnapshot, FileTxnLogReader, FileTxnLogWriter
from deltalakedb.files.optional_files import CheckpointWritten
from tests.files.checkpoints import METADATA, PROTOCOL
from tests.files.conftest import Golden
from tests.files.expected import files_of
from tests.fixtures.handmade import HandmadeTable, add, remove
from tests.fixtures.readers import Deltalake, DuckDB, Polars, Reader, Refused, sort_rows
from tests.golden.by_deltalake import TABLES

EVERYTHING = -(2**62)


def write_checkpoint(path: Path, tombstone_cutoff_ms: int = EVERYTHING) -> CheckpointWritten:
    snapshot = FileTxnLogReader(path).snapshot()
    writer = FileTxnLogWriter(path, table="t")
    written = writer.write_checkpoint(snapshot, protocol=snapshot.protocol, tombstone_cutoff_ms=tombstone_cutoff_ms)
    writer.write_last_checkpoint(written)
    return written


def leave_only(path: Path, version: int) -> None:
    """Delete everything in the log but the checkpoint and the commit of one version, and the pointer to it."""
    for file in (path / "_delta_log").iterdir():
        kept = (f"{version:020d}.checkpoint.", f"{version:020d}.json", "_last_checkpoint")
        if file.is_file() and not file.name.startswith(kept):
            file.unlink()


def copy_of(golden: Path, tmp_path: Path) -> Path:
    """The table without checkpoints of other writers, where it can be rebuilt without them."""
    path = tmp_path / golden.name
    shutil.copytree(golden, path)
    return path


def actions_in(checkpoint: Path) -> list[tuple[str, dict[str, Any]]]:
    """The actions of a checkpoint in an order of their own, null members left out."""
    found = []
    for row in pq.read_table(checkpoint).to_pylist(maps_as_pydicts="strict"):
        [(kind, action)] = [(kind, action) for kind, action in row.items() if action is not None]
        found.append((kind, without_nulls(action)))
    return sorted(found, key=repr)


def parsed_files(snapshot: FileSnapshot) -> dict[Any, dict[str, Any]]:
    """The files, without the text of their statistics where a checkpoint keeps them in the typed form only."""
    files = files_of(snapshot)
    if snapshot.metadata.configuration.get("delta.checkpoint.writeStatsAsJson") == "false":
        for action in files.values():
            stats = json.loads(action.pop("stats"))
            action["stats"] = stats["numRecords"], stats["nullCount"], stats["minValues"].keys()
    return files


def rows_of(reader: Reader, path: Path) -> list[str] | None:
    """The rows in an order of their own; None when the reader does not read such tables."""
    try:
        return sorted(map(repr, sort_rows(reader.latest(path).rows).to_pylist()))
    except Refused:
        return None


def without_nulls(action: dict[str, Any]) -> dict[str, Any]:
    """Members that say something. `dataChange` means nothing in a checkpoint, and writers differ."""
    return {
        name: dict(sorted(without_nulls(value).items())) if isinstance(value, dict) else value
        for name, value in action.items()
        if value is not None and name != "dataChange"
    }


@pytest.fixture(scope="module")
def duckdb_reader() -> Iterator[DuckDB]:
    reader = DuckDB()
    yield reader
    reader.close()


@pytest.mark.parametrize("name", sorted(TABLES))
def test_our_reader_finds_the_same_state_in_the_checkpoint_alone(name: str, golden: Golden, tmp_path: Path) -> None:
    path = copy_of(golden(name), tmp_path)
    before = FileTxnLogReader(path).snapshot()
    expected = parsed_files(before), before.tombstones().read_all().num_rows
    app_transactions, domains = before.app_transactions(), before.domain_metadata()
    written = write_checkpoint(path)
    leave_only(path, written.version)
    after = FileTxnLogReader(path).snapshot()
    assert (parsed_files(after), after.tombstones().read_all().num_rows) == expected
    assert (after.app_transactions(), after.domain_metadata()) == (app_transactions, domains)
    # An explicit null of a commit is not told from an absent field in a checkpoint.
    assert (after.protocol, after.metadata) == (before.protocol, replace(before.metadata, extra=""))
    assert written.num_add_files == len(expected[0])
    footer = pq.ParquetFile(path / "_delta_log" / f"{written.version:020d}.checkpoint.parquet").metadata
    assert written.num_actions == footer.num_rows
    assert written.size_bytes == os.path.getsize(written.path.removeprefix("file://"))


@pytest.mark.parametrize("name", sorted(TABLES))
def test_other_readers_read_the_same_rows(name: str, golden: Golden, tmp_path: Path, duckdb_reader: DuckDB) -> None:
    path = copy_of(golden(name), tmp_path)
    readers: dict[str, Reader] = {"deltalake": Deltalake(), "polars": Polars(), "duckdb": duckdb_reader}
    before = {name: rows_of(reader, path) for name, reader in readers.items()}
    assert before["deltalake"] is not None
    leave_only(path, write_checkpoint(path).version)
    assert {name: rows_of(reader, path) for name, reader in readers.items()} == before


@pytest.mark.parametrize("name", sorted(set(TABLES) - {"stats_as_struct"}))
def test_actions_are_those_of_the_checkpoint_that_deltalake_makes(name: str, golden: Golden, tmp_path: Path) -> None:
    path = copy_of(golden(name), tmp_path)
    written = write_checkpoint(path, tombstone_cutoff_ms=0)
    place = path / "_delta_log" / f"{written.version:020d}.checkpoint.parquet"
    ours = actions_in(place)
    place.unlink()
    (path / "_delta_log" / "_last_checkpoint").unlink()
    DeltaTable(path).create_checkpoint()
    theirs = actions_in(place)
    for kind, action in theirs:
        if kind == "remove":  # they have no place in a checkpoint (PROTOCOL.md, "Checkpoint Schema")
            action.pop("tags", None)
            action.pop("stats", None)
    assert ours == sorted(theirs, key=repr)


def test_typed_statistics_are_those_that_deltalake_writes(golden: Golden, tmp_path: Path) -> None:
    path = copy_of(golden("stats_as_struct"), tmp_path)
    written = write_checkpoint(path)
    place = path / "_delta_log" / f"{written.version:020d}.checkpoint.parquet"
    ours = pq.read_table(place, columns=["add"])
    place.unlink()
    (path / "_delta_log" / "_last_checkpoint").unlink()
    DeltaTable(path).create_checkpoint()
    theirs = pq.read_table(place, columns=["add"])
    assert "stats" not in [field.name for field in ours.schema.field("add").type]
    mine, other = (
        {row["add"]["path"]: row["add"] for row in table.to_pylist() if row["add"]} for table in (ours, theirs)
    )
    assert mine.keys() == other.keys()
    for place_of_file, found in mine.items():
        for name in ("stats_parsed", "partitionValues_parsed"):
            assert without_nulls(found[name]) == without_nulls(other[place_of_file][name])


@pytest.mark.parametrize("as_json", ["true", "false"])
def test_every_type_has_its_typed_statistics(
    as_json: str, golden: Golden, tmp_path: Path, duckdb_reader: DuckDB
) -> None:
    path = copy_of(golden("every_type"), tmp_path)
    config = {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": as_json}
    DeltaTable(path).alter.set_table_properties(config)
    before = files_of(FileTxnLogReader(path).snapshot())
    rows = rows_of(Deltalake(), path)
    written = write_checkpoint(path)
    leave_only(path, written.version)
    [add_type] = [field.type for field in pq.read_schema(written.path.removeprefix("file://")) if field.name == "add"]
    assert ("stats" in [field.name for field in add_type]) == (as_json == "true")
    adds = [row["add"] for row in pq.read_table(written.path.removeprefix("file://")).to_pylist() if row["add"]]
    for found in adds:
        stats = json.loads(before[found["path"], ""]["stats"])
        parsed = found["stats_parsed"]
        assert parsed["numRecords"] == stats["numRecords"]
        for bounds in ("minValues", "maxValues"):
            known = {name for name, value in parsed[bounds].items() if value is not None}
            assert known == {name for name, value in stats[bounds].items() if value is not None}
        assert without_nulls(parsed["nullCount"]) == stats["nullCount"]
    if as_json == "true":
        assert files_of(FileTxnLogReader(path).snapshot()) == before
    assert rows_of(Deltalake(), path) == rows
    assert [len(rows_of(reader, path) or ()) for reader in (Polars(), duckdb_reader)] == [len(rows or ())] * 2


ODD_STATS = [
    '{"numRecords":1,"minValues":{"f":"NaN","d":1.239},"maxValues":{"f":"Infinity","d":1.231},"nullCount":{"f":0}}',
    '{"numRecords":2,"minValues":{"t":"2020-01-01T10:00:00.000+02:00","s":"a\\"b"},"maxValues":{"i":1.5}}',
    '{"numRecords":3,\n"tightBounds":false,"minValues":{"i":300,"l":9223372036854775808}}',
    "not JSON",
    "",
    None,
    "[1]",
    '{"numRecords":"many","minValues":7,"nullCount":{"s":-1}}',
]


def test_odd_statistics_are_typed_as_far_as_they_can_be(handmade: HandmadeTable) -> None:
    types = {"i": "byte", "l": "long", "f": "double", "d": "decimal(5,2)", "s": "string", "t": "timestamp"}
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
    config = {"delta.checkpoint.writeStatsAsStruct": "true"}
    schema = json.dumps({"type": "struct", "fields": fields})
    metadata = {"metaData": METADATA["metaData"] | {"schemaString": schema, "configuration": config}}
    handmade.commit(PROTOCOL, metadata, *(add(f"{n}", stats=text) for n, text in enumerate(ODD_STATS)))
    written = write_checkpoint(handmade.path)
    rows = [row["add"] for row in pq.read_table(written.path.removeprefix("file://")).to_pylist() if row["add"]]
    assert [row["stats"] for row in rows] == ODD_STATS
    parsed = [row["stats_parsed"] and without_nulls(row["stats_parsed"]) for row in rows]
    assert parsed[0] is not None
    assert str(parsed[0]["minValues"].pop("f")) == "nan"
    # A decimal bound with more digits than its type is moved outwards, never inwards.
    assert {name: str(value["d"]) for name, value in parsed[0].items() if name.endswith("Values")} == {
        "minValues": "1.23",
        "maxValues": "1.24",
    }
    assert str(parsed[1] and parsed[1]["minValues"]["t"]) == "2020-01-01 08:00:00+00:00"
    assert parsed[2] == {"numRecords": 3, "tightBounds": False, "minValues": {}}
    assert parsed[3:7] == [None] * 4
    assert parsed[7] == {"nullCount": {}}


def test_required_columns_are_required_and_nothing_else_is(handmade: HandmadeTable) -> None:
    written = write_checkpoint(handmade.create().path)
    schema = pq.ParquetFile(written.path.removeprefix("file://")).schema_arrow
    required = {f"{kind.name}.{member.name}" for kind in schema for member in kind.type if not member.nullable}
    assert required == {
        "add.path", "add.partitionValues", "add.size", "add.modificationTime", "add.dataChange",
        "remove.path", "remove.dataChange",
        "metaData.id", "metaData.format", "metaData.schemaString", "metaData.partitionColumns",
        "metaData.configuration",
        "protocol.minReaderVersion", "protocol.minWriterVersion",
        "txn.appId", "txn.version",
        "domainMetadata.domain", "domainMetadata.configuration", "domainMetadata.removed",
    }  # fmt: skip
    assert all(kind.nullable for kind in schema)
    assert "sidecar" not in schema.names


def test_every_field_of_a_file_survives(handmade: HandmadeTable) -> None:
    size = {"sizeInBytes": 40, "cardinality": 6}
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, **size}
    inline = {"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", **size}
    odd = {"a\\b": "c\u0000d", "ü": '"', "none": None, "empty": ""}
    handmade.create()
    handmade.commit(
        add("plain"),
        add("a%20b/ü\\x\u0000.parquet", partitionValues=odd, tags=odd, deletionVector=vector, baseRowId=7,
            defaultRowCommitVersion=1, clusteringProvider="liquid\\"),
        add("inline", deletionVector=inline, tags={}),
    )  # fmt: skip
    handmade.commit(
        remove("plain", deletionTimestamp=5, extendedFileMetadata=True, partitionValues=odd, size=9, baseRowId=1,
               defaultRowCommitVersion=2),
        remove("other", deletionVector=vector),
    )  # fmt: skip
    before = FileTxnLogReader(handmade.path).snapshot()
    files, tombstones = files_of(before), before.tombstones().read_all().to_pylist()
    written = write_checkpoint(handmade.path)
    leave_only(handmade.path, written.version)
    after = FileTxnLogReader(handmade.path).snapshot()
    assert files_of(after) == files
    kept = after.tombstones().read_all().to_pylist()
    assert len(kept) == len(tombstones) == 2
    for row in (*kept, *tombstones):
        row["deletion_vector"] = row["deletion_vector"] and json.loads(row["deletion_vector"])
    kept_by_path = {row["path"]: row for row in kept}
    assert kept_by_path == {row["path"]: row | {"data_change": False, "extra": ""} for row in tombstones}


def test_only_tombstones_younger_than_the_cut_off_are_kept(handmade: HandmadeTable) -> None:
    handmade.create()
    handmade.commit(
        *(remove(f"{ms}", deletionTimestamp=ms) for ms in (999, 1000, 1001)), remove("unknown", deletionTimestamp=None)
    )
    written = write_checkpoint(handmade.path, tombstone_cutoff_ms=1000)
    actions = actions_in(Path(written.path.removeprefix("file://")))
    assert [action["path"] for kind, action in actions if kind == "remove"] == ["1001"]


def test_a_path_that_parquet_cannot_hold_is_an_error_that_changes_nothing(handmade: HandmadeTable) -> None:
    handmade.create()
    handmade.commit(add("half-\ud800"))
    names = sorted(os.listdir(handmade.log))
    with pytest.raises(MirrorError, match=r"table t: no checkpoint can be made of version 1: .*lone surrogate"):
        write_checkpoint(handmade.path)
    assert sorted(os.listdir(handmade.log)) == names


def test_a_checkpoint_that_fails_half_way_is_not_seen(handmade: HandmadeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    handmade.create().commit(add("a"))
    write_checkpoint(handmade.path)
    place = handmade.log / f"{1:020d}.checkpoint.parquet"
    names, content = sorted(os.listdir(handmade.log)), place.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(MirrorError, match="No space left on device; make room"):
        write_checkpoint(handmade.path)
    assert sorted(os.listdir(handmade.log)) == names
    assert place.read_bytes() == content


def test_the_same_state_gives_the_same_bytes_in_any_process(golden: Golden, tmp_path: Path) -> None:
    path = golden("partitioned")
    script = """
        import sys
        from deltalakedb.files import FileSnapshot, FileTxnLogReader, FileTxnLogWriter
        snapshot = FileTxnLogReader(sys.argv[1]).snapshot()
        writer = FileTxnLogWriter(sys.argv[2], table="t")
        writer.write_last_checkpoint(
            writer.write_checkpoint(snapshot, protocol=snapshot.protocol, tombstone_cutoff_ms=0)
        )
    """
    found = []
    for number, (zone, locale) in enumerate([("UTC", "C"), ("Asia/Kolkata", "tr_TR.UTF-8")]):
        copy = tmp_path / str(number)
        environment = os.environ | {"PYTHONHASHSEED": str(number), "TZ": zone, "LC_ALL": locale}
        command = [sys.executable, "-c", textwrap.dedent(script), str(path), str(copy)]
        subprocess.run(command, check=True, env=environment)
        found.append({file.name: file.read_bytes() for file in (copy / "_delta_log").iterdir()})
    assert found[0] == found[1]
    assert len(found[0]) == 2


def test_many_row_groups_are_read_back_as_one_table(handmade: HandmadeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltalakedb.files.checkpoint_writer.GROUP_ROWS", 100)
    handmade.create()
    handmade.commit(*(add(f"{n:04d}", partitionValues={"p": f"{n % 7}"}) for n in range(1050)))
    handmade.commit(*(remove(f"{n:04d}", deletionTimestamp=9) for n in range(500)))
    before = files_of(FileTxnLogReader(handmade.path).snapshot())
    written = write_checkpoint(handmade.path)
    leave_only(handmade.path, written.version)
    assert pq.ParquetFile(written.path.removeprefix("file://")).num_row_groups >= 10
    assert files_of(FileTxnLogReader(handmade.path).snapshot()) == before
    assert len(DeltaTable(handmade.path).file_uris()) == 550
    assert (written.num_actions, written.num_add_files) == (1052, 550)
