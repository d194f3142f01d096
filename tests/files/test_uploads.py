"""Checkpoints become visible whole: by rename on disk, by one upload of many parts in an object store."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from obstore.exceptions import GenericError

from deltalakedb.exceptions import MirrorError
from deltalakedb.files import FileTxnLogReader, FileTxnLogWriter
from deltalakedb.files.checkpoint_writer import read_ahead
from deltalakedb.files.log_folder import LogFolder
from deltalakedb.storage import object_store
from deltalakedb.storage.object_store import ObjectStorage
from tests.fixtures.handmade import HandmadeTable, add
from tests.fixtures.s3 import S3


def folder_on(s3: S3) -> LogFolder:
    folder = FileTxnLogWriter(s3.uri("t"), s3.storage_options, table="t")._folder
    assert isinstance(folder.storage, ObjectStorage)
    return folder


@pytest.fixture(params=["local", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> LogFolder:
    if request.param == "local":
        return FileTxnLogWriter(tmp_path, table="t")._folder
    return folder_on(request.getfixturevalue("s3"))


def test_an_upload_is_seen_when_it_is_complete(folder: LogFolder) -> None:
    with folder.upload("x.parquet") as file:
        file.write(b"first")
        file.flush()
        assert folder.read("x.parquet") is None
        file.write(b" second")
    assert folder.read("x.parquet") == b"first second"
    assert [found.name for found in folder.list()] == ["x.parquet"]


def test_an_upload_that_fails_leaves_what_was_there(folder: LogFolder) -> None:
    folder.replace("x.parquet", b"before")

    def fail_half_way() -> None:
        with folder.upload("x.parquet") as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    assert folder.read("x.parquet") == b"before"
    assert [found.name for found in folder.list()] == ["x.parquet"]


def test_a_large_upload_goes_in_parts(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "_PART_BYTES", 5 * 1024 * 1024)
    content = os.urandom(12 * 1024 * 1024)
    with folder_on(s3).upload("large.parquet") as file:
        file.write(content)
    [found] = s3.client.list_objects_v2(Bucket=s3.bucket)["Contents"]
    assert found["ETag"].strip('"').endswith("-3")
    body = s3.client.get_object(Bucket=s3.bucket, Key=found["Key"])["Body"].read()
    assert body == content


def test_an_upload_that_the_store_refuses_is_a_clear_error(s3: S3) -> None:
    folder = folder_on(s3)

    class Refusing:
        def put(self, *_: Any, **__: Any) -> None:
            raise GenericError("no more room in the cloud")

    folder.storage._store = Refusing()  # type: ignore[attr-defined]
    with pytest.raises(MirrorError, match="table t: cannot write s3://.*/x: no more room"), folder.upload("x") as file:
        file.write(b"x")
    assert s3.list_keys() == []


def test_a_full_temporary_folder_is_a_clear_error(s3: S3) -> None:
    def fill_the_disk() -> None:
        with folder_on(s3).upload("x"):
            raise OSError(28, "No space left on device")

    with pytest.raises(MirrorError, match=r"cannot write s3://.*/x: .*No space left on device; .*set TMPDIR"):
        fill_the_disk()


def test_a_large_commit_is_put_in_one_request_with_time_enough(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "_SMALL_PUT_BYTES", 10)
    folder = folder_on(s3)
    content = os.urandom(6 * 1024 * 1024)
    assert folder.put("0.json", content) == "written"
    assert folder.put("0.json", content) == "exists"
    assert folder.read("0.json") == content


def test_checkpoints_in_an_object_store_are_read_by_deltalake(handmade: HandmadeTable, s3: S3) -> None:
    handmade.create().commit(*(add(f"{n}", partitionValues={}) for n in range(500)))
    location = s3.upload(handmade.path, "t")
    snapshot = FileTxnLogReader(location, s3.storage_options).snapshot()
    writer = FileTxnLogWriter(location, s3.storage_options, table="t")
    written = writer.write_checkpoint(snapshot, protocol=snapshot.protocol, tombstone_cutoff_ms=0)
    writer.write_last_checkpoint(written)
    assert written.path == f"{location}/_delta_log/{1:020d}.checkpoint.parquet"
    head = s3.client.head_object(Bucket=s3.bucket, Key=f"t/_delta_log/{1:020d}.checkpoint.parquet")
    assert head["ContentLength"] == written.size_bytes
    s3.delete(f"t/_delta_log/{0:020d}.json")
    table = DeltaTable(location, storage_options=s3.storage_options)
    assert (table.version(), len(table.file_uris())) == (1, 500)


def test_a_process_killed_while_it_writes_a_checkpoint_leaves_none(handmade: HandmadeTable) -> None:
    handmade.create().commit(add("a"))
    script = """
        import os, signal, sys
        from deltalakedb.files import FileTxnLogReader, FileTxnLogWriter
        snapshot = FileTxnLogReader(sys.argv[1]).snapshot()
        os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
        FileTxnLogWriter(sys.argv[1], table="t").write_checkpoint(
            snapshot, protocol=snapshot.protocol, tombstone_cutoff_ms=0
        )
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(handmade.path)], check=False)
    assert done.returncode == -signal.SIGKILL
    [left] = [name for name in os.listdir(handmade.log) if not name.endswith(".json")]
    assert left.startswith(".")
    assert left.endswith(".tmp")
    assert DeltaTable(handmade.path).version() == 1
    assert FileTxnLogReader(handmade.path).snapshot().version == 1


def always(_: object) -> bool:
    return True


def test_reading_ahead_keeps_the_order_and_ends() -> None:
    for limit in (0, 1, 50, 99, 100):
        assert list(read_ahead(range(100), is_large=limit.__le__)) == list(range(100))
    assert list(read_ahead([], is_large=always)) == []


def test_what_fails_while_reading_ahead_is_raised_where_it_belongs() -> None:
    def failing() -> Any:
        yield 1
        yield 2
        raise ZeroDivisionError

    reader = read_ahead(failing(), is_large=always)
    assert (next(reader), next(reader)) == (1, 2)
    with pytest.raises(ZeroDivisionError):
        next(reader)


def test_reading_ahead_can_be_left_in_the_middle() -> None:
    closed = []

    def endless() -> Any:
        try:
            while True:
                yield 1
        finally:
            closed.append(True)

    source = endless()
    reader = read_ahead(source, is_large=always)
    assert next(reader) == 1
    reader.close()
    source.close()
    assert closed == [True]
