"""Logs that are broken are refused with nothing stored; logs that are merely odd are kept whole."""

import json
import logging
import subprocess
import sys
import textwrap
from pathlib import Path

import deltalake
import pytest

from deltalakedb.exceptions import DeltaProtocolError, LogGapError, MalformedLogError, UnsupportedFeatureError
from deltalakedb.log.protocol.commit import render_action
from deltalakedb.mirror.follow import attach
from deltalakedb.store import registry
from deltalakedb.store.connection import Store
from deltalakedb.store.reader import SqlTxnLogReader
from tests.conformance.test_attach import write_rows
from tests.fixtures.handmade import HandmadeTable, add


def assert_refused(store: Store, path: Path, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        attach(store, str(path), namespace="default", name="bad")
    assert "default.bad" in str(caught.value)
    with store.read() as conn:
        assert registry.list_tables(conn) == []
        assert conn.sql("select count(*) as n from dl_add_files")[0]["n"] == 0


METADATA = {"id": "x", "format": {"provider": "parquet"}, "schemaString": '{"type":"struct","fields":[]}'}


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"add":{"path":"a","partitionValues":{},"size":1,"modif', "version 1, line 1"),
        (b'{"add":{"path":"\xff\xfe","size":1}}\n', "not UTF-8"),
        (b"[1, 2]\n", "line 1"),
        (b'{"add":{"size":1}}\n', "path"),
        (b'{"add":{"path":"a","size":"big"}}\n', "size"),
        (json.dumps({"metaData": METADATA}).encode() + b"\n" + json.dumps({"metaData": METADATA}).encode(), "metaData"),
        (b'{"add":{"path":"../../etc/passwd","size":1}}\n', "leaves the table's folder"),
        (b'{"add":{"path":"x/%2E%2e/%2e%2e/y","size":1}}\n', "leaves the table's folder"),
        (b'{"add":{"path":"a","size":1}}\n{"remove":{"path":"a"}}\n', "adds and removes"),
        (b'{"add":{"path":"a","size":1}}\n{"add":{"path":"a","size":2}}\n', "twice"),
        (b'{"txn":{"appId":"s","version":1}}\n{"txn":{"appId":"s","version":2}}\n', "txn"),
    ],
)
def test_a_broken_commit_is_refused_and_named(
    store: Store, handmade: HandmadeTable, content: bytes, words: str
) -> None:
    handmade.create().commit_bytes(content)
    assert_refused(store, handmade.path, MalformedLogError, words)


def test_a_reader_feature_we_do_not_know_is_named_with_its_table(store: Store, handmade: HandmadeTable) -> None:
    handmade.create().commit(
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["teleport"],
                "writerFeatures": ["teleport"],
            }
        }
    )
    assert_refused(store, handmade.path, UnsupportedFeatureError, "teleport")


def test_a_log_without_protocol_or_metadata_is_refused(store: Store, handmade: HandmadeTable) -> None:
    handmade.commit(add("a"))
    assert_refused(store, handmade.path, DeltaProtocolError, "metaData")


def test_a_missing_version_is_named(store: Store, handmade: HandmadeTable) -> None:
    handmade.create().commit(add("a")).commit(add("b")).commit(add("c"))
    handmade.commit_path(2).unlink()
    assert_refused(store, handmade.path, LogGapError, "version 2 is missing")


def test_a_corrupt_checkpoint_that_nothing_can_replace_is_refused(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "t"
    for number in range(3):
        write_rows(path, number)
    deltalake.DeltaTable(path).create_checkpoint()
    log = path / "_delta_log"
    for version in range(3):
        (log / f"{version:020d}.json").unlink()
    checkpoint = log / f"{2:020d}.checkpoint.parquet"
    checkpoint.write_bytes(checkpoint.read_bytes()[:200])
    assert_refused(store, path, DeltaProtocolError, "checkpoint")


def test_statistics_that_are_not_json_are_kept_and_warned_of(
    store: Store, handmade: HandmadeTable, caplog: pytest.LogCaptureFixture
) -> None:
    handmade.create().commit(add("a", stats="not {json"), add("b"))
    with caplog.at_level(logging.WARNING):
        table = attach(store, str(handmade.path), namespace="default", name="t").table
    assert any("default.t" in record.getMessage() and "statistics" in record.getMessage() for record in caplog.records)
    files = SqlTxnLogReader(store, table).snapshot().files().read_all()
    assert "not {json" in files.column("stats").to_pylist()
    with store.read() as conn:
        head = registry.read_head(conn, table.table_id)
    assert head is not None
    assert head.files_without_records == 1


ODD_ACTIONS = [
    add("nul-\u0000-and-\ud800-lone", tags={"k\u0000": "v\ud83d", "back\\slash": None}),
    add("s3://elsewhere/absolute/path.parquet"),
    add(
        "caf%C3%A9 \u65e5\u672c/%20x.parquet",
        unknownField={"deep": [1.50, 1e3, 12345678901234567890123]},
        deletionVector=None,
    ),
    {"txn": {"appId": "stream\u0000\udfff", "version": 9007199254740993, "lastUpdated": None}},
    {"domainMetadata": {"domain": "my.\ud800", "configuration": "\u0000{}", "removed": False}},
    {"commitInfo": {"operation": "WR\u0000ITE\ud800", "operationParameters": {"a\\": "\u0000"}, "x": 0.1}},
    {"somethingNew": {"from": "the future", "n": 1.10}},
]


def test_strings_that_databases_refuse_and_fields_nobody_knows_come_back_as_they_were(
    store: Store, handmade: HandmadeTable
) -> None:
    handmade.create().commit(*ODD_ACTIONS)
    table = attach(store, str(handmade.path), namespace="default", name="t").table
    (commit,) = SqlTxnLogReader(store, table).commits(1, 1)
    assert [json.loads(render_action(action)) for action in commit.actions] == [
        json.loads(json.dumps(action)) for action in ODD_ACTIONS
    ]


def test_a_commit_line_of_100_mb_is_read_in_bounded_memory(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import resource, sys
        from pathlib import Path
        from deltalakedb.mirror.follow import attach
        from deltalakedb.store import open_store
        from tests.fixtures.handmade import HandmadeTable, add

        root = Path(sys.argv[1])
        table = HandmadeTable(root / "t").create()
        with table.commit_path(1).open("w") as file:
            file.write('{"commitInfo":{"operation":"WRITE","note":"')
            for _ in range(100):
                file.write("x" * 1_000_000)
            file.write('"}}\\n')
        table.version = 1
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        store = open_store("sqlite", str(root / "catalog.db"), schema="create_if_missing")
        head = attach(store, str(table.path), namespace="default", name="t").head
        assert head.current_version == 1
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
        """
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1_200, "megabytes on top for one line of 100 MB"
