"""`_last_checkpoint` carries its checksum, and never leads readers back."""

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from deltalakedb.files import FileTxnLogReader, FileTxnLogWriter
from deltalakedb.files.optional_files import (
    CheckpointWritten,
    canonical_json,
    hinted_version,
    json_checksum,
    render_last_checkpoint,
)
from tests.fixtures.handmade import HandmadeTable, add
from tests.fixtures.s3 import S3

# PROTOCOL.md, "JSON checksum"
SAMPLE = (
    """{"k0":"'v 0'", "checksum": "adsaskfljadfkjadfkj", "k1":{"k2": 2, "k3": ["v3", [1, 2], """
    """{"k4": "v4", "k5": ["v5", "v6", "v7"]}]}}"""
)
CANONICAL = (
    '"k0"="%27v%200%27","k1"+"k2"=2,"k1"+"k3"+0="v3","k1"+"k3"+1+0=1,"k1"+"k3"+1+1=2,"k1"+"k3"+2+"k4"="v4",'
    '"k1"+"k3"+2+"k5"+0="v5","k1"+"k3"+2+"k5"+1="v6","k1"+"k3"+2+"k5"+2="v7"'
)


def test_the_checksum_is_that_of_the_protocols_sample() -> None:
    sample = json.loads(SAMPLE)
    assert canonical_json(sample) == CANONICAL
    assert json_checksum(sample) == "6a92d155a59bf2eecbd4b4ec7fd1f875"


@pytest.mark.parametrize(
    ("value", "canonical"),
    [
        ({"a": 10, "b": {"y": None, "x": "https://delta.io"}}, '"a"=10,"b"+"x"="https%3A%2F%2Fdelta.io","b"+"y"=null'),
        ({"z": [None, "hi ho", 2.71]}, '"z"+0=null,"z"+1="hi%20ho","z"+2=2.71'),
        ({"b": True, "a": False, "ü~": "ä-._~"}, '"%C3%BC~"="%C3%A4-._~","a"=false,"b"=true'),
        ({"checksum": 1, "inner": {"checksum": 2}}, '"inner"+"checksum"=2'),
    ],
)
def test_values_have_one_canonical_form(value: dict[str, Any], canonical: str) -> None:
    assert canonical_json(value) == canonical


def test_the_pointer_says_what_is_in_the_checkpoint() -> None:
    fields = json.loads(render_last_checkpoint(CheckpointWritten(7, 12, 9, 3456, "x")))
    checksum = fields.pop("checksum")
    assert fields == {"version": 7, "size": 12, "sizeInBytes": 3456, "numOfAddFiles": 9}
    assert checksum == json_checksum(fields)


@pytest.mark.parametrize("data", [None, b"", b"{", b"[]", b"7", b"{}", b'{"version":"3"}', b'{"version":-1}',
                                  b'{"version":true}', b'{"version":3,"checksum":"wrong"}'])  # fmt: skip
def test_a_pointer_that_cannot_be_trusted_says_nothing(data: bytes | None) -> None:
    assert hinted_version(data) is None


def test_a_pointer_is_read_with_and_without_a_checksum() -> None:
    assert hinted_version(b'{"version":3}') == 3
    assert hinted_version(render_last_checkpoint(CheckpointWritten(4, 1, 1, 1, "x"))) == 4


def write(writer: FileTxnLogWriter, handmade: HandmadeTable, version: int) -> CheckpointWritten:
    snapshot = FileTxnLogReader(handmade.path).snapshot(version)
    return writer.write_checkpoint(snapshot, protocol=snapshot.protocol, tombstone_cutoff_ms=0)


@pytest.fixture(params=["local", "s3"])
def writer(request: pytest.FixtureRequest, handmade: HandmadeTable) -> FileTxnLogWriter:
    handmade.create().commit(add("a")).commit(add("b"))
    if request.param == "local":
        return FileTxnLogWriter(handmade.path, table="t")
    s3: S3 = request.getfixturevalue("s3")
    return FileTxnLogWriter(s3.upload(handmade.path, "t"), s3.storage_options, table="t")


def pointer(writer: FileTxnLogWriter) -> int | None:
    return hinted_version(writer._folder.read("_last_checkpoint"))


def test_the_pointer_never_moves_backwards(writer: FileTxnLogWriter, handmade: HandmadeTable) -> None:
    older, newer = write(writer, handmade, 1), write(writer, handmade, 2)
    assert writer.write_last_checkpoint(older)
    assert writer.write_last_checkpoint(newer)
    assert not writer.write_last_checkpoint(older)
    assert pointer(writer) == 2
    assert writer.write_last_checkpoint(newer)


@pytest.mark.parametrize("wrong", [b"{", b'{"version":9}', b'{"version":2,"checksum":"wrong"}'])
def test_a_pointer_that_leads_nowhere_is_replaced(
    wrong: bytes, writer: FileTxnLogWriter, handmade: HandmadeTable
) -> None:
    written = write(writer, handmade, 1)
    writer._folder.replace("_last_checkpoint", wrong)
    assert writer.write_last_checkpoint(written)
    assert pointer(writer) == 1


def test_deltalake_follows_the_pointer(handmade: HandmadeTable) -> None:
    handmade.create().commit(add("a")).commit(add("b"))
    writer = FileTxnLogWriter(handmade.path, table="t")
    writer.write_last_checkpoint(write(writer, handmade, 1))
    for version in (0, 1):
        handmade.commit_path(version).unlink()
    table = DeltaTable(handmade.path)
    assert (table.version(), len(table.file_uris())) == (2, 2)


def test_what_hadoop_remembers_of_a_replaced_file_goes_with_it(handmade: HandmadeTable) -> None:
    handmade.create().commit(add("a"))
    writer = FileTxnLogWriter(handmade.path, table="t")
    names = [f"{1:020d}.checkpoint.parquet", "_last_checkpoint"]
    for name in names:
        (handmade.log / f".{name}.crc").write_bytes(b"crc of the file that was there before")
    writer.write_last_checkpoint(write(writer, handmade, 1))
    assert [name for name in names if (handmade.log / name).exists()] == names
    assert [file.name for file in handmade.log.iterdir() if file.name.startswith(".")] == []


def test_readers_never_see_half_a_pointer(tmp_path: Path) -> None:
    folder = FileTxnLogWriter(tmp_path, table="t")._folder
    folder.replace("_last_checkpoint", b"old")
    before = (tmp_path / "_delta_log" / "_last_checkpoint").open("rb")
    folder.replace("_last_checkpoint", b"the new one")
    with before:
        assert before.read() == b"old"
    assert folder.read("_last_checkpoint") == b"the new one"
