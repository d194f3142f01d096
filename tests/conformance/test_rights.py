"""Who may do what behind `dl serve`: every operation, through every door, with every right, on every engine."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from starlette.routing import Route

import deltalakedb
from deltalakedb import Catalog
from deltalakedb.exceptions import ConfigError
from deltalakedb.rights import Right
from deltalakedb.runtime.caller import Caller
from deltalakedb.serve import LocalEndpoint
from deltalakedb.serve.app import create_app
from deltalakedb.serve.iceberg.endpoints import Endpoint
from tests.fixtures.doors import DoorAnswer, Doors
from tests.serve.wire import append, ask, first_commit

ANN = Caller("ann", frozenset({"analysts"}))
BOB = Caller("bob")
ROOT = Caller("root", proof="endpoint")
GRANTED = (None, *Right)
COLUMNS = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}],
}
VIEW = {
    "schema": COLUMNS,
    "properties": {},
    "view-version": {
        "version-id": 1,
        "schema-id": 0,
        "timestamp-ms": 1,
        "summary": {},
        "default-namespace": ["sales"],
        "representations": [{"type": "sql", "sql": "select 1", "dialect": "spark"}],
    },
}


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


def path_of(catalog: Catalog, name: str) -> str:
    return f"/file{catalog.config.warehouse}/{name.replace('.', '/')}"


@dataclass(frozen=True)
class Operation:
    """A request about one table or view, and the right that it needs."""

    name: str
    right: Right
    ask: Callable[[Doors, Catalog, Caller, str], DoorAnswer]
    kind: str = "delta"
    destroys: bool = False


def bridge(method: str, route: str, **query: Any) -> Callable[[Doors, Catalog, Caller, str], DoorAnswer]:
    """A request to the bridge; `path` and `name` stand for those of the table."""

    def ask(doors: Doors, catalog: Catalog, caller: Caller, name: str) -> DoorAnswer:
        values = {"path": path_of(catalog, name), "name": name}
        body: Any = "\n".join(append(f"{uuid.uuid4()}.parquet")) if (method, route) == ("POST", "/commit") else None
        sent = {key: values.get(key, value) for key, value in query.items()}
        if "id" in sent:
            sent["id"] = str(uuid.uuid4())
        if route in ("/plan", "/aggregates"):
            body = {"filters": [], "columns": []}
        return doors.bridge(caller, method, route, sent, body)

    return ask


def iceberg(method: str, route: str, body: Any = None) -> Callable[[Doors, Catalog, Caller, str], DoorAnswer]:
    """A request to the Iceberg REST catalog; `*` stands for the table's or view's name."""

    def ask(doors: Doors, _catalog: Catalog, caller: Caller, name: str) -> DoorAnswer:
        text = None if body is None else json.loads(json.dumps(body).replace("*", name.partition(".")[2]))
        return doors.iceberg(caller, method, route.replace("*", name.partition(".")[2]), body=text)

    return ask


SET = [{"action": "set-properties", "updates": {"a": "1"}}]
TABLE, VIEWS = "/namespaces/sales/tables/*", "/namespaces/sales/views/*"
THERE = {"namespace": ["sales"], "name": "*"}
MOVED = {"source": THERE, "destination": {"namespace": ["sales"], "name": "moved_*"}}
OPERATIONS = (
    Operation("bridge log", Right.READ, bridge("GET", "/log", path="")),
    Operation("bridge read commit", Right.READ, bridge("GET", "/commit", path="", version=0)),
    Operation("bridge checksum", Right.READ, bridge("GET", "/crc", path="", version=0)),
    Operation("bridge plan", Right.READ, bridge("POST", "/plan", path="", version=0)),
    Operation("bridge state", Right.READ, bridge("GET", "/state", path="", version=0)),
    Operation("bridge name", Right.READ, bridge("GET", "/name", name="")),
    Operation("bridge commit", Right.WRITE, bridge("POST", "/commit", path="", version=1, id=""), destroys=True),
    Operation("bridge rename", Right.MANAGE, bridge("POST", "/rename", name="", to="sales.moved"), destroys=True),
    Operation("bridge drop", Right.MANAGE, bridge("DELETE", "/name", name=""), destroys=True),
    Operation("iceberg exists", Right.DISCOVER, iceberg("HEAD", TABLE), "ice"),
    Operation("iceberg load", Right.READ, iceberg("GET", TABLE), "ice"),
    Operation("iceberg credentials", Right.READ, iceberg("GET", f"{TABLE}/credentials"), "ice"),
    Operation(
        "iceberg metrics", Right.READ, iceberg("POST", f"{TABLE}/metrics", {"report-type": "scan-report"}), "ice"
    ),
    Operation("iceberg plan", Right.READ, iceberg("POST", f"{TABLE}/plan", {}), "ice"),
    Operation("iceberg commit", Right.WRITE, iceberg("POST", TABLE, {"requirements": [], "updates": SET}), "ice"),
    Operation(
        "iceberg commit of several",
        Right.WRITE,
        iceberg(
            "POST",
            "/transactions/commit",
            {"table-changes": [{"identifier": THERE, "requirements": [], "updates": SET}]},
        ),
        "ice",
    ),
    Operation("iceberg rename", Right.MANAGE, iceberg("POST", "/tables/rename", MOVED), "ice", destroys=True),
    Operation("iceberg drop", Right.MANAGE, iceberg("DELETE", TABLE), "ice", destroys=True),
    Operation("iceberg unregister", Right.MANAGE, iceberg("POST", f"{TABLE}/unregister"), "ice", destroys=True),
    Operation("view exists", Right.DISCOVER, iceberg("HEAD", VIEWS), "view"),
    Operation("view load", Right.READ, iceberg("GET", VIEWS), "view"),
    Operation("view replace", Right.WRITE, iceberg("POST", VIEWS, {"requirements": [], "updates": SET}), "view"),
    Operation("view rename", Right.MANAGE, iceberg("POST", "/views/rename", MOVED), "view", destroys=True),
    Operation("view drop", Right.MANAGE, iceberg("DELETE", VIEWS), "view", destroys=True),
)


def make(doors: Doors, catalog: Catalog, kind: str, name: str) -> None:
    """Create a table or a view, as the owner of the endpoint."""
    short = name.partition(".")[2]
    if kind == "delta":
        reserved = doors.bridge(ROOT, "POST", "/name", {"name": name})
        assert reserved.status == 200, reserved.body
        made = doors.bridge(
            ROOT,
            "POST",
            "/commit",
            {"path": path_of(catalog, name), "version": 0, "id": str(uuid.uuid4())},
            "\n".join(first_commit()),
        )
    elif kind == "ice":
        made = doors.iceberg(ROOT, "POST", "/namespaces/sales/tables", body={"name": short, "schema": COLUMNS})
    else:
        made = doors.iceberg(ROOT, "POST", "/namespaces/sales/views", body={"name": short, **VIEW})
    assert made.status == 200, made.body


def includes(granted: Right | None, needed: Right) -> bool:
    ladder = [Right.DISCOVER, Right.READ, Right.WRITE, Right.MANAGE]
    return granted in ladder and ladder.index(granted) >= ladder.index(needed)


def same_but_for_name(answer: DoorAnswer, name: str) -> tuple[int, bytes]:
    return answer.status, answer.body.replace(name.partition(".")[2].encode(), b"*")


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_an_operation_is_allowed_exactly_with_its_right(doors: Doors, catalog: Catalog, operation: Operation) -> None:
    catalog.create_namespace("sales")
    for number, granted in enumerate(GRANTED):
        if number == 0 or operation.destroys:
            name = f"sales.t{number}"
            make(doors, catalog, operation.kind, name)
        on = "sales" if granted is Right.CREATE else name
        caller = Caller("ann", frozenset({f"group {number}"}))
        if granted is not None:
            catalog.grant(granted, on=on, to=f"group:group {number}")
        missing = operation.ask(doors, catalog, caller, f"sales.x{number}")
        answer = operation.ask(doors, catalog, caller, name)
        renamed = operation.name.endswith("rename")
        if granted is Right.CREATE and operation.name == "bridge commit":
            assert answer.status == 403, "to commit where a caller sees no table is to create one"
        elif granted in (None, Right.CREATE):
            assert same_but_for_name(answer, name) == same_but_for_name(missing, f"sales.x{number}"), granted
            assert not answer.status >= 500, answer.body
        elif includes(granted, operation.right) and not renamed:
            assert answer.status in (200, 204), (granted, answer.body)
        else:  # a name in the namespace needs a right on the namespace, too
            assert answer.status == 403, (granted, answer.status, answer.body)
            assert b"not permitted" in answer.body or operation.name.endswith("exists")
        if renamed and granted is Right.MANAGE:
            catalog.grant(Right.CREATE, on="sales", to=f"group:group {number}")
            assert operation.ask(doors, catalog, caller, name).status in (200, 204)
    assert operation.ask(doors, catalog, BOB, name).status != 500


def test_every_route_declares_its_right(doors: Doors) -> None:
    for route in doors.bridge_router.routes():
        assert isinstance(route, Route)
        assert hasattr(route.endpoint, "right"), f"{route.path} declares no right: use secured_route"
    with pytest.raises(TypeError, match="right"):
        Endpoint("GET", "/v1/new", lambda call: call)  # type: ignore[call-arg, arg-type, return-value]


def test_an_endpoint_without_a_token_cannot_have_rights(catalog: Catalog) -> None:
    with pytest.raises(ConfigError, match="rights.mode is on"):
        create_app(catalog, token=None, iceberg=True)


def listed(doors: Doors, caller: Caller) -> dict[str, Any]:
    """All that the lists of both doors tell a caller."""
    told: dict[str, Any] = {}
    for namespace in ("sales", "hr", "sales.eu"):
        told[f"bridge {namespace}"] = doors.bridge(caller, "GET", "/names", {"namespace": namespace}).json
        encoded = namespace.replace(".", "%1F")
        for noun in ("tables", "views"):
            answer = doors.iceberg(caller, "GET", f"/namespaces/{encoded}/{noun}")
            told[f"{noun} {namespace}"] = answer.json.get("identifiers", answer.status)
    told["namespaces"] = doors.bridge(caller, "GET", "/namespaces").json
    told["iceberg namespaces"] = doors.iceberg(caller, "GET", "/namespaces").json["namespaces"]
    return told


def test_lists_name_nothing_that_is_hidden(doors: Doors, catalog: Catalog) -> None:
    for name in ("sales.orders", "sales.secret", "hr.people", "sales.eu.orders"):
        catalog.create_table(name, "id long")
    make(doors, catalog, "view", "sales.v")
    assert listed(doors, ROOT)["bridge sales"] == ["sales.orders", "sales.secret", "sales.v"]
    nothing = listed(doors, ANN)
    assert [value for value in nothing.values() if value not in ([], 404)] == []
    catalog.grant("discover", on="sales.orders", to="user:ann")
    told = listed(doors, ANN)
    assert told["bridge sales"] == ["sales.orders"]
    assert [name["name"] for name in told["tables sales"]] == ["orders"]
    assert (told["namespaces"], told["iceberg namespaces"]) == (["sales"], [["sales"]])
    assert not any(word in json.dumps(list(told.values())) for word in ("secret", "people", '"hr"', '"eu"'))
    errors = [
        doors.bridge(ANN, "GET", "/name", {"name": "sales.secre"}),
        doors.bridge(ANN, "DELETE", "/name", {"name": "sales.secret2"}),
        doors.bridge(ANN, "POST", "/undrop", {"name": "hr.peopl"}),
        doors.bridge(ANN, "DELETE", "/namespace", {"namespace": "sales"}),
        doors.bridge(ANN, "GET", "/namespace", {"namespace": "hr"}),
        doors.iceberg(ANN, "GET", "/namespaces/hr"),
        doors.iceberg(ANN, "HEAD", "/namespaces/hr"),
    ]
    assert [answer.status for answer in errors] == [404, 404, 404, 403, 404, 404, 404]
    assert not any(b"people'" in answer.body or b"sales.secret;" in answer.body for answer in errors)


def test_a_hidden_name_and_a_forbidden_one_cannot_be_told_apart_by_creating(doors: Doors, catalog: Catalog) -> None:
    catalog.create_table("sales.secret", "id long")
    for noun in ("tables", "views"):
        bodies = []
        for name in ("secret", "absent"):
            body = {"name": name, **(VIEW if noun == "views" else {"schema": COLUMNS})}
            catalog.grant("discover", on="sales", to="group:lookers")
            looker = Caller("eve", frozenset({"lookers"}))
            catalog.revoke("discover", on="sales", to="group:lookers")
            catalog.create_table("sales.open", "id long", mode="ignore") if name == "secret" else None
            catalog.grant("discover", on="sales.open", to="user:eve")
            answer = doors.iceberg(looker, "POST", f"/namespaces/sales/{noun}", body=body)
            bodies.append((answer.status, answer.body.replace(name.encode(), b"*")))
        assert bodies[0] == bodies[1]
        assert bodies[0][0] == 403
    catalog.grant("create", on="sales", to="user:ann")
    requests = [
        doors.bridge(ANN, "POST", "/name", {"name": "sales.secret"}),
        doors.bridge(
            ANN,
            "POST",
            "/commit",
            {"path": path_of(catalog, "sales.secret"), "version": 0, "id": "x"},
            "\n".join(first_commit()),
        ),
        doors.iceberg(ANN, "POST", "/namespaces/sales/tables", body={"name": "secret", "schema": COLUMNS}),
        doors.iceberg(ANN, "POST", "/namespaces/sales/views", body={"name": "SECRET", **VIEW}),
        doors.iceberg(
            ANN,
            "POST",
            "/namespaces/sales/tables",
            body={"name": "secret", "schema": COLUMNS, "stage-create": True},
        ),
        doors.iceberg(
            ANN,
            "POST",
            "/namespaces/sales/tables/secret",
            body={"requirements": [{"type": "assert-create"}], "updates": SET},
        ),
    ]
    assert [(answer.status, b"may not create sales." in answer.body) for answer in requests] == [(403, True)] * 6


def test_who_creates_a_table_or_a_namespace_manages_it(doors: Doors, catalog: Catalog) -> None:
    catalog.create_namespace("sales")
    catalog.grant("create", on="sales", to="user:ann")
    assert doors.bridge(ANN, "POST", "/name", {"name": "sales.mine"}).status == 200
    sent = {"path": path_of(catalog, "sales.mine"), "version": 0, "id": str(uuid.uuid4())}
    assert doors.bridge(ANN, "POST", "/commit", sent, "\n".join(first_commit())).status == 200
    ice = doors.iceberg(ANN, "POST", "/namespaces/sales/tables", body={"name": "ice", "schema": COLUMNS})
    assert ice.status == 200
    inner = doors.iceberg(ANN, "POST", "/namespaces", body={"namespace": ["sales", "inner"]})
    assert inner.status == 200
    assert doors.iceberg(ANN, "POST", "/namespaces", body={"namespace": ["other"]}).status == 403
    assert [(row.to, row.right) for row in catalog.who_can("sales.ice")] == [
        ("user:ann", "create"),
        ("user:ann", "manage"),
    ]
    assert doors.bridge(ANN, "DELETE", "/name", {"name": "sales.mine"}).status == 200
    assert doors.bridge(BOB, "POST", "/undrop", {"name": "sales.mine"}).status == 404
    assert doors.bridge(ANN, "POST", "/undrop", {"name": "sales.mine"}).status == 200
    assert doors.iceberg(ANN, "DELETE", "/namespaces/sales%1Finner").status == 204
    assert doors.iceberg(ANN, "DELETE", "/namespaces/sales").status == 403
    assert doors.bridge(BOB, "GET", "/name", {"name": "sales.mine"}).status == 404


def test_a_transaction_over_tables_needs_the_rights_when_it_stages_and_when_it_commits(
    doors: Doors, catalog: Catalog
) -> None:
    for name in ("sales.a", "sales.b", "sales.c"):
        catalog.create_table(name, "id long")
    catalog.grant("write", on="sales.a", to="user:ann")
    catalog.grant("write", on="sales.b", to="user:ann")
    catalog.grant("read", on="sales.c", to="user:ann")

    def stage(txn: str, name: str) -> DoorAnswer:
        sent = {"path": path_of(catalog, name), "version": 1, "id": str(uuid.uuid4()), "txn": txn}
        return doors.bridge(ANN, "POST", "/commit", sent, "\n".join(append("f.parquet")))

    txn = doors.bridge(ANN, "POST", "/txn", body={}).json["txn"]
    assert stage(txn, "sales.a").status == 200
    assert stage(txn, "sales.c").status == 403
    assert stage(txn, "sales.b").status == 200
    assert doors.bridge(BOB, "GET", "/log", {"path": path_of(catalog, "sales.a"), "txn": txn}).status == 410
    assert doors.bridge(BOB, "POST", f"/txn/{txn}/abort").status in (200, 410)
    catalog.revoke("write", on="sales.b", to="user:ann")
    ended = doors.bridge(ANN, "POST", f"/txn/{txn}/commit", body={})
    assert ended.status == 403, ended.body
    assert [catalog.table(name).version() for name in ("sales.a", "sales.b")] == [0, 0]
    locking = doors.bridge(ANN, "POST", "/txn", body={"lock": ["sales.c"]})
    assert locking.status == 403


def test_a_revoked_right_ends_with_the_next_request_also_for_caches(doors: Doors, catalog: Catalog) -> None:
    catalog.create_namespace("sales")
    make(doors, catalog, "ice", "sales.ice")
    catalog.grant("write", on="sales.ice", to="user:ann")
    key = {"idempotency-key": str(uuid.uuid4())}
    change = {"requirements": [], "updates": SET}
    first = doors.iceberg(ANN, "POST", "/namespaces/sales/tables/ice", body=change, headers=key)
    tag = doors.iceberg(ANN, "GET", "/namespaces/sales/tables/ice").headers["etag"]
    unchanged = {"if-none-match": tag}
    assert doors.iceberg(ANN, "GET", "/namespaces/sales/tables/ice", headers=unchanged).status == 304
    assert first.status == 200
    # Another caller gets neither the answer of the key, nor a 304 for the tag.
    assert doors.iceberg(BOB, "POST", "/namespaces/sales/tables/ice", body=change, headers=key).status == 422
    assert doors.iceberg(BOB, "GET", "/namespaces/sales/tables/ice", headers=unchanged).status == 404
    catalog.revoke("write", on="sales.ice", to="user:ann")
    assert doors.iceberg(ANN, "POST", "/namespaces/sales/tables/ice", body=change, headers=key).status == 404
    assert doors.iceberg(ANN, "GET", "/namespaces/sales/tables/ice", headers=unchanged).status == 404


def test_locations_that_a_caller_names_must_be_allowed(doors: Doors, catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_table("sales.secret", "id long")
    catalog.create_namespace("lab")
    catalog.grant("manage", on="lab", to="user:ann")
    outside, lake = tmp_path / "elsewhere", Path(str(catalog.config.warehouse))
    for location in (str(outside), f"{lake}/../elsewhere", f"file://{outside}"):
        answer = doors.bridge(ANN, "POST", "/name", {"name": "lab.t", "location": location, "attach": "true"})
        assert (answer.status, b"may not put tables" in answer.body) == (403, True), location
        folder = doors.bridge(
            ANN, "POST", "/namespace/properties", {"namespace": "lab"}, {"properties": {"location": location}}
        )
        assert folder.status == 403, location
    inside = doors.bridge(ANN, "POST", "/name", {"name": "lab.t", "location": f"{lake}/sales/secret/x"})
    assert inside.status == 409
    assert b"secret'" not in inside.body
    assert b"sales.secret" not in inside.body
    assert doors.bridge(ANN, "POST", "/name", {"name": "lab.t", "location": f"{lake}/free"}).status == 200


def test_names_with_odd_characters_and_other_case_have_the_rights_of_their_table(
    doors: Doors, catalog: Catalog
) -> None:
    odd = "sales.`o'r; drop table dl_grants --`"
    catalog.create_table(odd, "id long")
    catalog.create_table("sales.hidden", "id long")
    catalog.grant("read", on=odd, to="user:ann")
    assert doors.bridge(ANN, "GET", "/name", {"name": odd.upper()}).status == 200
    assert doors.bridge(ANN, "GET", "/name", {"name": "SALES.HIDDEN"}).status == 404
    for name in ("sales.`hidden' or '1'='1`", "sales.hidden--", 'sales.`hidden"`'):
        assert doors.bridge(ANN, "GET", "/name", {"name": name}).status in (400, 404, 422)
    assert doors.bridge(Caller("ann' or '1'='1"), "GET", "/namespaces").json == []
    assert catalog.sql("select count(*) as n from dl_grants").to_pylist() == [{"n": 1}]


def test_without_rights_everybody_may_do_everything(target: str, tmp_path: Path) -> None:
    with deltalakedb.connect(target, warehouse=str(tmp_path / "lake"), mirror_mode="off") as catalog:
        doors = Doors(catalog)
        try:
            catalog.create_table("sales.orders", "id long")
            assert doors.bridge(ANN, "GET", "/namespaces").json == ["default", "sales"]
            assert doors.bridge(BOB, "DELETE", "/name", {"name": "sales.orders"}).status == 200
        finally:
            doors.close()


MODEL_TABLES = {"a.t": ("a",), "a.u": ("a",), "a.b.t": ("a.b", "a"), "c.t": ("c",)}
"""Tables with the namespaces around them."""


@pytest.mark.parametrize("seed", [1, 2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_random_grants_show_exactly_what_a_model_says(doors: Doors, catalog: Catalog, seed: int) -> None:
    random = Random(seed)
    for name in MODEL_TABLES:
        catalog.create_table(name, "id long")
    objects = [f"table:{name}" for name in MODEL_TABLES] + ["namespace:a", "namespace:a.b", "namespace:c", "catalog"]
    granted: set[tuple[str, str]] = set()
    for _ in range(12):
        on, to = random.choice(objects), random.choice(["user:ann", "group:analysts"])
        if (on, to) in granted:
            catalog.revoke("read", on=on, to=to)
        else:
            catalog.grant("read", on=on, to=to)
        granted ^= {(on, to)}
        held = {place for place, _ in granted}
        expected = {
            name
            for name, around in MODEL_TABLES.items()
            if {"catalog", f"table:{name}", *(f"namespace:{outer}" for outer in around)} & held
        }
        listed = [doors.bridge(ANN, "GET", "/names", {"namespace": namespace}).json for namespace in ("a", "a.b", "c")]
        assert {name for names in listed for name in names} == expected, granted
        found = {name for name in MODEL_TABLES if doors.bridge(ANN, "GET", "/name", {"name": name}).status == 200}
        assert found == expected, granted


def test_the_owner_of_a_named_token_may_do_what_was_granted(target: str, tmp_path: Path) -> None:
    settings = {"warehouse": str(tmp_path / "lake"), "mirror_mode": "off", "rights_mode": "on"}
    with LocalEndpoint(target, **settings) as endpoint:
        catalog = endpoint.catalog
        catalog.create_table("sales.orders", "id long")
        secret = catalog.create_token("nightly", "ann", ["analysts"]).secret
        asked = {"name": "sales.orders"}
        assert ask(endpoint.url, secret, "GET", "/name", asked).status == 404
        assert ask(endpoint.url, endpoint.token, "GET", "/name", asked).status == 200
        catalog.grant("read", on="sales.orders", to="group:analysts")
        assert ask(endpoint.url, secret, "GET", "/name", asked).status == 200
        assert ask(endpoint.url, secret, "DELETE", "/name", asked).status == 403
