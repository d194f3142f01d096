"""The places a log is read from: each test of the reader runs on local disk, in memory and on S3."""

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from deltalakedb.files import FileTxnLogReader
from deltalakedb.storage.location import parse_location
from deltalakedb.storage.options import Credentials, open_object_store
from tests.fixtures.s3 import S3
from tests.golden.by_deltalake import TABLES

OpenLog = Callable[[Path], FileTxnLogReader]
Golden = Callable[[str], Path]


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """A function that gives the table of that name written by `deltalake`, made once; tests only read it."""
    root = tmp_path_factory.mktemp("golden")

    def make(name: str) -> Path:
        path = root / name
        if not path.exists():
            path.mkdir()
            TABLES[name](path)
        return path

    return make


@pytest.fixture(params=["local", "memory", "s3"])
def open_log(request: pytest.FixtureRequest) -> OpenLog:
    """A function that takes a local table to the place under test and opens its log there."""
    if request.param == "local":
        return FileTxnLogReader
    if request.param == "memory":
        return _open_in_memory
    s3: S3 = request.getfixturevalue("s3")
    return lambda path: FileTxnLogReader(s3.upload(path, f"lake/{uuid.uuid4().hex}"), s3.storage_options)


def _open_in_memory(path: Path) -> FileTxnLogReader:
    uri = f"memory://{uuid.uuid4().hex}/lake/table"
    store = open_object_store(parse_location(uri), {}, Credentials.of({}))
    for file in path.rglob("*"):
        if file.is_file():
            store.put(f"lake/table/{file.relative_to(path).as_posix()}", file.read_bytes())
    return FileTxnLogReader(uri)
