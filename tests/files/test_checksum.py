"""`N.crc` says what a table adds up to at a version, in bytes that depend on nothing else."""

import json
from pathlib import Path

import pytest

from deltalakedb.exceptions import MirrorError
from deltalakedb.files import FileTxnLogWriter
from deltalakedb.files.optional_files import Checksum
from deltalakedb.log.protocol.actions import Format, Metadata, Protocol
from tests.fixtures.s3 import S3

METADATA = Metadata("id-1", Format(), '{"type":"struct","fields":[]}', ("p",), {"ü": "\ud800"}, "orders", None, 5)
PROTOCOL = Protocol(1, 7, None, ("appendOnly", "deltalakedb"))


def test_a_checksum_has_the_required_fields() -> None:
    assert json.loads(Checksum(300, 2, METADATA, PROTOCOL).render()) == {
        "tableSizeBytes": 300,
        "numFiles": 2,
        "numMetadata": 1,
        "numProtocol": 1,
        "metadata": {
            "id": "id-1",
            "name": "orders",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": '{"type":"struct","fields":[]}',
            "partitionColumns": ["p"],
            "configuration": {"ü": "\ud800"},
            "createdTime": 5,
        },
        "protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly", "deltalakedb"]},
    }


def test_the_in_commit_timestamp_is_there_if_and_only_if_the_table_keeps_it() -> None:
    assert b"inCommitTimestampOpt" not in Checksum(0, 0, METADATA, PROTOCOL).render()
    assert json.loads(Checksum(0, 0, METADATA, PROTOCOL, 0).render())["inCommitTimestampOpt"] == 0


@pytest.mark.parametrize("place", ["local", "s3"])
def test_a_checksum_is_never_overwritten(place: str, tmp_path: Path, s3: S3) -> None:
    location, options = (str(tmp_path), {}) if place == "local" else (s3.uri("t"), s3.storage_options)
    writer = FileTxnLogWriter(location, options, table="t")
    writer.put_commit(3, b"{}", modified_ms=1)
    assert writer.put_checksum(3, Checksum(1, 1, METADATA, PROTOCOL)) == "written"
    assert writer.put_checksum(3, Checksum(2, 2, METADATA, PROTOCOL)) == "exists"
    kept = writer._folder.read("00000000000000000003.crc")
    assert kept == Checksum(1, 1, METADATA, PROTOCOL).render()


def test_a_checksum_does_not_bring_back_the_folder_of_a_table_that_was_purged(tmp_path: Path) -> None:
    writer = FileTxnLogWriter(tmp_path / "t", {}, table="t")
    with pytest.raises(MirrorError, match="No such file"):
        writer.put_checksum(0, Checksum(1, 1, METADATA, PROTOCOL))
    assert not (tmp_path / "t").exists()
