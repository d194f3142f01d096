"""What only object stores can do: many small requests, large objects in ranges, failures that carry secrets."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from obstore.store import LocalStore

from deltalakedb.exceptions import DeltaError, LogGapError
from deltalakedb.files import FileTxnLogReader, checkpoint_reader
from deltalakedb.storage import object_store
from deltalakedb.storage.location import open_storage
from deltalakedb.storage.object_store import ObjectStorage
from tests.files.checkpoints import METADATA, PROTOCOL, classic
from tests.files.expected import files_of, replayed, without_data_change
from tests.fixtures.handmade import HandmadeTable, add
from tests.fixtures.s3 import ACCESS_KEY_ID, S3, SECRET_ACCESS_KEY


class Requests:
    """Counts what is asked of the endpoint, by operation."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.made: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.made.append(name)
        return getattr(self._store, name)


def test_a_table_written_by_deltalake_to_s3_is_read_from_s3(s3: S3, tmp_path: Path) -> None:
    uri = s3.uri("written/there")
    for number in range(5):
        write_deltalake(uri, pa.table({"x": [number]}), mode="append", storage_options=s3.storage_options)
        if number == 2:
            DeltaTable(uri, storage_options=s3.storage_options).create_checkpoint()
    log = tmp_path / "_delta_log"
    log.mkdir()
    for key in s3.list_keys():
        if key.endswith(".json"):
            body = s3.client.get_object(Bucket=s3.bucket, Key=key)["Body"].read()
            (log / key.rpartition("/")[2]).write_bytes(body)
    reader = FileTxnLogReader(uri.replace("s3://", "s3a://") + "/", s3.storage_options)
    assert reader.location == uri
    for version in range(5):
        assert files_of(reader.snapshot(version)) == without_data_change(replayed(tmp_path, version))


def test_credentials_may_come_from_the_environment(
    s3: S3, handmade: HandmadeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = s3.upload(handmade.create().path, "t")
    for key, value in s3.storage_options.items():
        monkeypatch.setenv(key, value)
    assert FileTxnLogReader(uri).latest_version() == 0


@pytest.mark.parametrize("change", [{"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, {"AWS_ALLOW_HTTP": "false"}, {}])
def test_a_failing_endpoint_is_an_error_without_secrets(
    change: dict[str, str], s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deltalakedb.storage.options._RETRIES", {"max_retries": 0})
    location = s3.uri("t") if change else "s3://no-such-bucket/t"
    reader = FileTxnLogReader(location, s3.storage_options | change)
    with pytest.raises(DeltaError, match=location) as caught:
        reader.snapshot()
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET_ACCESS_KEY not in repr(error)
        assert ACCESS_KEY_ID not in repr(error)
        error = error.__cause__
    assert SECRET_ACCESS_KEY not in repr(reader) + repr(reader.storage)


def test_large_objects_are_read_in_ranges_and_spooled(
    s3: S3, handmade: HandmadeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "CHUNK_BYTES", 1_000)
    monkeypatch.setattr(checkpoint_reader, "SMALL_BYTES", 5_000)
    adds = [add(f"{number:04d}.parquet") for number in range(200)]
    classic(handmade.log, 0, [PROTOCOL, METADATA, *adds])
    handmade.version = 0
    handmade.commit(*(add(f"later-{number:04d}.parquet") for number in range(100)))
    reader = FileTxnLogReader(s3.upload(handmade.path, "t"), s3.storage_options)
    assert reader.snapshot().files().read_all().num_rows == 300
    [commit] = reader.commits(1)
    assert len(commit.actions) == 100
    assert commit.size_bytes == handmade.commit_path(1).stat().st_size


def test_following_a_log_at_rest_does_not_list_all_of_it(s3: S3, handmade: HandmadeTable) -> None:
    handmade.create()
    for number in range(30):
        handmade.commit(add(str(number)))
    reader = FileTxnLogReader(s3.upload(handmade.path, "t"), s3.storage_options)
    requests = Requests(reader.storage._store)  # type: ignore[attr-defined]
    reader.storage._store = requests  # type: ignore[attr-defined]
    assert list(reader.commits(31)) == []
    assert requests.made == ["list"]


def test_commits_are_fetched_ahead_and_arrive_in_order(s3: S3, handmade: HandmadeTable) -> None:
    handmade.create()
    for number in range(1, 50):
        handmade.commit(add(str(number)))
    reader = FileTxnLogReader(s3.upload(handmade.path, "t"), s3.storage_options)
    assert [commit.version for commit in reader.commits(0)] == list(range(50))
    started = reader.commits(0)
    next(started)
    s3.delete(f"t/_delta_log/{40:020d}.json")
    with pytest.raises(LogGapError) as caught:
        list(started)
    assert caught.value.missing_version == 40


def test_objects_after_a_missing_one_are_deleted_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """obstore's store on a disk stops a list of deletes at the first missing object, as that of GCS does."""
    storage = open_storage("memory:///t")
    assert isinstance(storage, ObjectStorage)
    monkeypatch.setattr(storage, "_store", LocalStore(tmp_path))
    names = [f"{number}.parquet" for number in range(40)]
    (tmp_path / "t").mkdir()
    for name in names[1:]:
        (tmp_path / "t" / name).write_bytes(b"x")
    storage.delete(*names)
    assert list((tmp_path / "t").iterdir()) == []
