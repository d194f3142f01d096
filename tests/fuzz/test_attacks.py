"""What people try against a server: places of other machines, ways out of a folder, SQL in names, forged logs."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from deltalakedb import DeltaTable
from deltalakedb.cli import output
from deltalakedb.exceptions import DeltaError, MalformedLogError, escape_controls
from deltalakedb.log.protocol.paths import check_path
from deltalakedb.storage.location import open_named, open_storage
from deltalakedb.storage.object_store import ObjectStorage
from tests.fixtures.handmade import HandmadeTable, add
from tests.fixtures.s3 import S3
from tests.fuzz.of_requests import Served, check_answer
from tests.iceberg.rest.wire import SCHEMA

TABLES, NOTES = "/iceberg/v1/namespaces/shop/tables", "/iceberg/v1/namespaces/shop/tables/notes"
FOREIGN = [
    "http://169.254.169.254/latest/meta-data/iam/security-credentials/", "https://localhost:8080/x", "ftp://host/x",
    "file:///etc/passwd", "/etc/passwd", "file:///proc/self/environ", "s3://somebody-else/x", "gopher://host/x",
    "//host/share", "file://host/etc/passwd", "{lake}/../secret", "{lake}/%2e%2e/%2e%2e/secret/../x", "{lake}/./x",
    "{lake}\0/x", "{lake}/" + "x" * 5000, "{lake}2/x", "jdbc:postgresql://host/db", "-", "~root/x", "",
]  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    made = Served(folder)
    (folder / "secret").mkdir()
    (folder / "secret/v1.json").write_text("{}")
    yield made
    made.catalog.close()


def post(served: Served, path: str, body: Any, query: str = "") -> tuple[int, str]:
    status, answer = served.call("POST", path, query, json.dumps(body).encode(), {})
    check_answer(status, answer)
    return status, answer.decode()


@pytest.mark.parametrize("location", FOREIGN)
def test_no_request_makes_the_server_open_a_foreign_place(served: Served, location: str) -> None:
    place = location.replace("{lake}", str(served.lake))
    properties = {"action": "set-properties", "updates": {"write.metadata.path": place}}
    asked: list[tuple[str, Any]] = [
        ("/iceberg/v1/namespaces/shop/register", {"name": "stolen", "metadata-location": f"{place}/v1.json"}),
        (TABLES, {"name": "stolen", "schema": SCHEMA, "location": place}),
        (NOTES, {"requirements": [], "updates": [{"action": "set-location", "location": place}]}),
    ]
    if place:  # an empty path is none
        asked.append((NOTES, {"requirements": [], "updates": [properties]}))
    for path, body in asked:
        status, answer = post(served, path, body)
        assert status in (400, 403), (path, status, answer)
        assert "root:" not in answer


@pytest.mark.parametrize("name", ["a'; drop table dl_tables; --", 'a"b', "a`b", "a\\", "%27", "x\x1b[2J", "a\nERROR b"])
def test_names_with_sql_in_them_are_names(served: Served, name: str) -> None:
    status, _ = post(served, "/iceberg/v1/namespaces", {"namespace": [name]})
    assert status in (200, 400)
    served.call("GET", f"/iceberg/v1/namespaces/{quote(name, safe='')}/tables", "", b"", {})
    served.call("GET", "/bridge/v1/name", f"name={quote(f'`{name}`.x')}", b"", {})
    assert served.call("GET", NOTES, "", b"", {})[0] == 200


@pytest.mark.parametrize(
    "predicate",
    ["1=1; drop table dl_tables", "id = (select 1)", "id in (select table_id from dl_tables)", "id = 1 union select 1",
     "read_csv('/etc/passwd') is null", "getenv('HOME') = 'x'", "id = 1 --", "1=1) or (1=1"],
)  # fmt: skip
def test_predicates_with_sql_in_them_reach_no_database(tmp_path: Path, predicate: str) -> None:
    HandmadeTable(tmp_path / "t").create().commit(add("x.parquet"))
    table = DeltaTable(tmp_path / "t")
    with pytest.raises((DeltaError, FileNotFoundError)):
        table.delete(predicate)
    assert DeltaTable(tmp_path / "t").version() == 1


@pytest.mark.parametrize(
    "path", ["../x", "a/../../x", "%2e%2e/x", "a/%2E%2e/x", "..%2fx", "a\\..\\x", "%2e%2e%5cx", "..", "a/.."]
)
def test_paths_of_the_log_do_not_leave_the_table(path: str) -> None:
    with pytest.raises(MalformedLogError, match="leaves the table's folder"):
        check_path(path)


@pytest.mark.parametrize("path", ["file:///etc/passwd", "/etc/passwd", "FILE:///etc/passwd", "file:/etc/passwd"])
def test_a_table_in_a_bucket_names_no_file_of_this_machine(s3: S3, path: str) -> None:
    storage = open_storage(s3.uri("t"), s3.storage_options)
    assert isinstance(storage, ObjectStorage)
    with pytest.raises(MalformedLogError, match="on a local disk"):
        open_named(storage, path)


def test_a_log_line_cannot_begin_another_one_or_move_the_cursor() -> None:
    message = "no table a\r\x1b[2K\x1b[1Aroot logged in\n2026-01-01 INFO deltalakedb.access all is well\u2028x\x9b1A"
    record = logging.LogRecord("deltalakedb", logging.ERROR, "f", 1, "%s", (message,), None)
    lines = output.LogLines("%(asctime)s %(levelname)s %(message)s").format(record).splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("    2026-01-01 INFO")
    assert not any(char in "".join(lines) for char in "\x1b\x9b\r\u2028")
    assert escape_controls("a\tb\nc é 日本") == "a\tb\nc é 日本"
