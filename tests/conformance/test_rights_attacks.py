"""What a caller of `dl serve` with few rights must not get by detours: tables of others, names, files, a way in."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import deltalakedb
from deltalakedb import Catalog
from tests.conformance.test_rights import ANN, BOB, COLUMNS, ROOT, make, path_of
from tests.fixtures.doors import Doors
from tests.serve.wire import append, first_commit


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:
    settings = {"warehouse": str(tmp_path / "lake"), "mirror_mode": "off", "rights_mode": "on"}
    with deltalakedb.connect(target, actor="root", **settings) as opened:
        yield opened


@pytest.fixture
def doors(catalog: Catalog) -> Iterator[Doors]:
    made = Doors(catalog)
    yield made
    made.close()


def test_who_creates_a_namespace_gets_no_right_on_what_others_had_there(doors: Doors, catalog: Catalog) -> None:
    catalog.create_namespace("lab")
    catalog.grant("create", on="lab", to="user:ann")
    catalog.create_table("lab.hr.eu.people", "id long")
    for answer in (
        doors.bridge(ANN, "POST", "/namespace", {"namespace": "lab.hr"}),
        doors.iceberg(ANN, "POST", "/namespaces", body={"namespace": ["lab", "hr"]}),
    ):
        assert (answer.status, b"around namespaces that others manage" in answer.body) == (403, True)
    assert doors.bridge(ANN, "GET", "/name", {"name": "lab.hr.eu.people"}).status == 404
    # A namespace under the name of one that is gone is another one: its tables that were dropped are not the creator's.
    catalog.drop_namespace("lab.hr.eu", cascade=True)
    for namespace in ("lab.hr", "lab.hr.eu"):
        assert doors.bridge(ANN, "POST", "/namespace", {"namespace": namespace}).status == 200
    undrop = {"name": "lab.hr.eu.people", "as": "lab.mine"}
    assert doors.bridge(ANN, "POST", "/undrop", undrop).status == 404
    catalog.create_table("lab.hr.eu.people", "id long")
    assert doors.bridge(ANN, "DELETE", "/name", {"name": "lab.hr.eu.people"}).status == 200
    assert doors.bridge(ANN, "POST", "/undrop", undrop).status == 200
    assert doors.bridge(ANN, "POST", "/undrop", undrop).status == 404
    assert [table.full_name for table in catalog.dropped_tables()] == ["lab.hr.eu.people"]


def test_a_reservation_is_hidden_from_who_may_not_create_there(doors: Doors, catalog: Catalog, tmp_path: Path) -> None:
    for place in (f"{catalog.config.warehouse}/free/spot", str(tmp_path / "elsewhere")):
        reserved = {"name": f"hr.{place.rpartition('/')[2]}_people", "location": place}
        assert doors.bridge(ROOT, "POST", "/name", reserved).status == 200
        answers = []
        for path in (f"/file{place}", f"/file{place}2"):
            sent = {"path": path, "version": 0, "id": str(uuid.uuid4())}
            told = [
                doors.bridge(BOB, "GET", "/log", {"path": path}),
                doors.bridge(BOB, "POST", "/commit", sent, "\n".join(first_commit())),
            ]
            assert not any(b"people" in answer.body for answer in told)
            answers.append([(answer.status, answer.body.replace(b"2", b"").replace(b"0", b"")) for answer in told])
        assert answers[0] == answers[1]


def test_a_commit_does_not_tell_that_a_hidden_table_was_created_meanwhile(doors: Doors, catalog: Catalog) -> None:
    catalog.create_table("sales.open", "id long")
    catalog.grant("write", on="sales.open", to="user:ann")
    txn = doors.bridge(ANN, "POST", "/txn", body={}).json["txn"]
    assert doors.bridge(ANN, "GET", "/name", {"name": "hr.people", "txn": txn}).status == 404
    catalog.create_table("hr.people", "id long")
    sent = {"path": path_of(catalog, "sales.open"), "version": 1, "id": str(uuid.uuid4()), "txn": txn}
    assert doors.bridge(ANN, "POST", "/commit", sent, "\n".join(append("f.parquet"))).status == 200
    ended = doors.bridge(ANN, "POST", f"/txn/{txn}/commit", body={})
    assert ended.status == 200, ended.body


def test_plans_read_no_files_that_are_not_the_tables(doors: Doors, catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_namespace("sales")
    make(doors, catalog, "ice", "sales.secret")
    catalog.create_namespace("lab")
    catalog.grant("create", on="lab", to="user:ann")
    assert doors.iceberg(ANN, "POST", "/namespaces/lab/tables", body={"name": "t", "schema": COLUMNS}).status == 200
    (tmp_path / "there").write_text("not Avro")
    folder = f"{catalog.config.warehouse}/sales/secret/metadata"
    told = []
    for number, path in enumerate((tmp_path / "there", tmp_path / "missing", f"{folder}/a.avro", f"{folder}/../b"), 1):
        snapshot = {
            "snapshot-id": number,
            "sequence-number": number,
            "timestamp-ms": time.time_ns() // 1_000_000 + number,
            "manifest-list": str(path),
            "summary": {"operation": "append"},
            "schema-id": 0,
        }
        updates = [
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": number},
        ]
        changed = doors.iceberg(ANN, "POST", "/namespaces/lab/tables/t", body={"requirements": [], "updates": updates})
        assert changed.status == 200, changed.body
        plan = doors.iceberg(ANN, "POST", "/namespaces/lab/tables/t/plan", body={}).json
        told.append((plan["status"], plan["error"]["message"].replace(str(path), "*")))
    assert set(told) == {("failed", "the table's metadata names *, which is in no folder of the table")}


def test_a_body_that_is_nested_too_deeply_or_no_text_is_refused(doors: Doors, catalog: Catalog) -> None:
    catalog.create_namespace("lab")
    for body in ('{"properties":' * 50_000, '{"properties": {"a": "\\ud800"}}'):
        answer = doors.bridge(ROOT, "POST", "/namespace/properties", {"namespace": "lab"}, body)
        assert (answer.status, b"must be a JSON object" in answer.body) == (422, True)
