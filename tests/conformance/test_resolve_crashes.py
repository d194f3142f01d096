"""Resolving, killed at any step or over an object store: whole or not at all, and it can be run again."""

import json
from pathlib import Path

import pytest

from deltalakedb.exceptions import ExternalWriterError
from deltalakedb.mirror.engine import MirrorEngine
from deltalakedb.mirror.follow import attach
from deltalakedb.mirror.promote import promote
from deltalakedb.mirror.resolve import resolve
from deltalakedb.mirror.validate import validate
from deltalakedb.runtime.config import load_config
from deltalakedb.store.connection import Store
from deltalakedb.store.reader import SqlTxnLogReader
from tests.conformance.conftest import OpenStore
from tests.conformance.lives import (
    append,
    foreign_append,
    head_of,
    kill_at,
    log_bytes,
    mirror,
    read_ids,
    row_of,
    write_rows,
)
from tests.fixtures.s3 import S3


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("step", "decision"),
    [
        ("resolve.imported", "adopt"),
        ("resolve.written", "adopt"),
        ("resolve.written", "overrule"),
        ("resolve.committed", "adopt"),
        ("mirror.json_linked", "overrule"),
    ],
)
def test_a_resolution_killed_at_any_step_is_whole_or_not_at_all(
    open_again: OpenStore, target: str, tmp_path: Path, step: str, decision: str
) -> None:
    lake = tmp_path / "t"
    write_rows(lake, 0)
    store = open_again()
    table = promote(store, attach(store, str(lake), namespace="default", name="t").table).table
    first, second = append(store, table, lake, 10), append(store, table, lake, 11)
    foreign_append(lake, tmp_path / "scratch", 20)
    before = SqlTxnLogReader(store, table).history()
    store.close()
    kill_at(step, target, f"cat.resolve_table('t', '{decision}')")
    store = open_again()
    files = log_bytes(lake)
    if step in ("resolve.imported", "resolve.written"):
        assert SqlTxnLogReader(store, table).history() == before, "nothing of it has happened"
        assert row_of(store).state == "frozen"
        resolve(store, table, "adopt" if decision == "adopt" else "overrule")
    assert row_of(store).state == "live"
    mirror(store, row_of(store))
    txn_ids = [entry.txn_id for entry in SqlTxnLogReader(store, table).history()]
    assert txn_ids[:2] == [second.txn_id, first.txn_id]
    assert [txn_ids.count(one.txn_id) for one in (first, second)] == [1, 1], "each once"
    assert read_ids(lake) == ([0, 10, 11, 20] if decision == "adopt" else [0, 10, 11])
    assert files.items() <= log_bytes(lake).items()
    assert validate(store, row_of(store)).drift is None
    assert head_of(store, table).num_files == (4 if decision == "adopt" else 3)


def test_another_writer_on_s3_is_found_frozen_and_adopted(store: Store, s3: S3, tmp_path: Path) -> None:
    options = s3.storage_options
    write_rows(s3.uri("t"), 0, options={**options, "aws_conditional_put": "etag"})
    attached = attach(store, s3.uri("t"), namespace="default", name="t", storage_options=options).table
    table = promote(store, attached, storage_options=options).table
    ours = append(store, table, tmp_path, 10)
    info = json.dumps({"commitInfo": {"operation": "WRITE", "isBlindAppend": True}})
    s3.put(f"t/_delta_log/{2:020d}.json", f"{info}\n".encode())
    with MirrorEngine(store, config=load_config(), options_of=lambda _: options, mode="off") as engine:
        with pytest.raises(ExternalWriterError, match="frozen"):
            engine.mirror_table(table)
        done = resolve(store, table, "adopt", storage_options=options)
        assert [(one.old_version, one.new_version) for one in done.recommitted] == [(2, 3)]
        assert engine.mirror_table(done.table).error is None
    assert (
        s3.client.get_object(Bucket=s3.bucket, Key=f"t/_delta_log/{2:020d}.json")["Body"].read() == f"{info}\n".encode()
    )
    assert SqlTxnLogReader(store, table).history()[0].txn_id == ours.txn_id
    assert validate(store, row_of(store), storage_options=options).drift is None
