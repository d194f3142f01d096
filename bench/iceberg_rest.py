"""The Iceberg REST catalog against Iceberg's reference server: commits of two tables, long listings and histories."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.crowd import Crowd, run_crowd
from bench.lab import Lab, say
from bench.measure import time_in_turns
from bench.report import Row, at_least, milliseconds
from bench.writers import IcebergTransaction, Job
from tests.fixtures.cluster import free_port
from tests.iceberg.kit import kit_jars

REFERENCE = "the reference server"
NAMESPACE = "bench"
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
CLIENTS = 8
TURNS = 2
SNAPSHOTS = 1_000
START_SECONDS = 60.0
COMMIT_NOTE = (
    "two-table commits = `transactions/commit` of the same two tables by all clients, half of which name the tables in "
    "the other order; each sets a property of its own in both, by HTTP, one connection for each client, which is a "
    "process; *lost* are changes that were answered with 204 and are missing, of the newest 50 of each client in each "
    "table. The reference server is Iceberg's own (JdbcCatalog on a SQLite file)"
)
LIST_NOTE = "listing = all names of one namespace in one answer; loading = the answer to `GET`, of one client"


class RestCatalog:
    """One connection to a server's Iceberg endpoints."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        assert address.hostname is not None
        self._path = address.path
        self._connection = http.client.HTTPConnection(address.hostname, address.port, timeout=120)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The JSON of an answer; an error is raised with its status."""
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            self._connection.request(method, self._path + path, data, headers)
            answer = self._connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:200].decode(errors='replace')}")
        return json.loads(text) if text else None

    def close(self) -> None:
        self._connection.close()


def commit_rows(lab: Lab) -> list[Row]:
    """Clients whose commits cross."""
    tables, crowds, lost = ("left", "right"), {}, {}
    with ExitStack() as stack:
        urls = _servers(lab, stack, "commits")
        for url in urls.values():
            _create(url, tables)
        for name, url in urls.items():
            jobs = [
                Job("iceberg", url, ",".join(tables if number % 2 else tables[::-1]), lab.sizes.seconds / TURNS)
                for number in range(CLIENTS)
            ]
            runs = [say(f"{CLIENTS} clients: {name}", partial(run_crowd, jobs)) for _ in range(TURNS)]
            crowds[name] = Crowd.together(runs)
            lost[name] = _lost(url, tables)
    theirs = crowds.pop(REFERENCE)
    rows = []
    for engine, ours in crowds.items():
        assert not lost[engine][0], f"{lost[engine][0]} acknowledged commits are not in both tables ({engine})"
        rate = ours.per_second / theirs.per_second
        against = "{} {}, {} of the newest {} lost".format(REFERENCE, theirs.text, *lost[REFERENCE])
        what, bar = f"{CLIENTS} clients, two-table commits, none lost", at_least(3)
        rows.append(Row(what, engine, ours.text, against, rate, "x as many", bar, COMMIT_NOTE))
    return rows


def _lost(url: str, tables: Sequence[str]) -> tuple[int, int]:
    """Of the newest commits of each client, those that a table does not show; and how many were looked at."""
    catalog = RestCatalog(url)
    lost = looked_at = 0
    for table in tables:
        marks: dict[str, dict[int, int]] = {}
        for key, value in _load(catalog, table)["metadata"]["properties"].items():
            if key.startswith("mark-"):
                _, client, place = key.split("-")
                marks.setdefault(client, {})[int(place)] = int(value)
        for shown in marks.values():
            newest = max(shown.values())
            expected = range(max(0, newest - IcebergTransaction.MARKS + 1), newest + 1)
            lost += sum(shown.get(number % IcebergTransaction.MARKS) != number for number in expected)
            looked_at += len(expected)
    catalog.close()
    return lost, looked_at


def list_rows(lab: Lab) -> list[Row]:
    """All names of a large namespace, and tables with many snapshots."""
    names = [f"table_{number:06}" for number in range(lab.sizes.iceberg_tables)]
    with ExitStack() as stack:
        urls = _servers(lab, stack, "lists")
        for name, url in urls.items():
            say(f"creating {len(names):,} tables: {name}", partial(_create, url, names))
            _add_snapshots(url, names[0])
        catalogs = {name: RestCatalog(url) for name, url in urls.items()}
        for catalog in catalogs.values():
            stack.callback(catalog.close)
        path = f"/namespaces/{NAMESPACE}/tables"
        rows = _compare(lab, catalogs, f"listing {len(names):,} tables", path, "identifiers")
        path = f"{path}/{names[0]}"
        rows += _compare(lab, catalogs, f"loading a table of {SNAPSHOTS:,} snapshots", path)
        rows += _compare(lab, catalogs, "the same, snapshots=refs", f"{path}?snapshots=refs")
    return rows


def _compare(lab: Lab, catalogs: dict[str, RestCatalog], what: str, path: str, counted: str | None = None) -> list[Row]:
    calls: dict[str, Callable[[], Any]] = {
        name: partial(catalog.ask, "GET", path) for name, catalog in catalogs.items()
    }
    timings = say(f"timing: {what}", lambda: time_in_turns(calls, lab.sizes.rounds))
    if counted:
        counts = {name: len(timing.answer[counted]) for name, timing in timings.items()}
        assert set(counts.values()) == {lab.sizes.iceberg_tables}, counts
    them = timings.pop(REFERENCE).median_ms
    against = f"{REFERENCE} {milliseconds(them)}"
    return [
        Row(what, engine, milliseconds(us.median_ms), against, them / us.median_ms, "x faster", None, LIST_NOTE)
        for engine, us in timings.items()
    ]


# -- the servers and their tables


def _servers(lab: Lab, stack: ExitStack, name: str) -> dict[str, str]:
    """The reference server and ours on each engine, all on empty catalogs: the URLs of their endpoints."""
    urls = {REFERENCE: stack.enter_context(reference_server(lab.folder / f"{name}_reference"))}
    for engine in lab.engines:
        uri = lab.empty_catalog(engine, f"iceberg_{name}").uri
        urls[engine] = stack.enter_context(our_server(uri, lab.folder / f"{name}_{engine}"))
    for url in urls.values():
        catalog = RestCatalog(url)
        catalog.ask("POST", "/namespaces", {"namespace": [NAMESPACE]})
        catalog.close()
    return urls


@contextmanager
def our_server(catalog: str, warehouse: Path) -> Iterator[str]:
    """`dl serve --iceberg` in a process of its own."""
    command = [sys.executable, "-c", "from deltalakedb.cli import main; main()", "serve", "--iceberg", "--no-token"]
    command += ["--port", "0", "--catalog", catalog, "--warehouse", str(warehouse)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            raise RuntimeError("dl serve did not start; its error is above")
        yield f"{url}/iceberg/v1"
    finally:
        process.terminate()
        process.communicate(timeout=90)


@contextmanager
def reference_server(folder: Path) -> Iterator[str]:
    """Iceberg's reference server: its catalog is a SQLite file, its warehouse is on the same disk."""
    (folder / "lake").mkdir(parents=True)
    port = free_port()
    settings = {
        "CATALOG_REST_PORT": str(port),
        "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
        "CATALOG_URI": f"jdbc:sqlite:{folder / 'catalog.db'}",
        "CATALOG_WAREHOUSE": str(folder / "lake"),
    }
    command = ["java", "-Xmx2g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    command += ["-cp", os.pathsep.join(kit_jars()), "org.apache.iceberg.rest.RESTCatalogServer"]
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **settings})
        try:
            url = f"http://127.0.0.1:{port}/v1"
            _wait_for(url, process)
            yield url
        finally:
            process.terminate()
            process.wait(timeout=60)


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        catalog = RestCatalog(url)
        try:
            catalog.ask("GET", "/config")
        except OSError:
            time.sleep(0.2)
        else:
            return
        finally:
            catalog.close()
    raise RuntimeError("the reference server did not start")


def _create(url: str, names: Sequence[str]) -> None:
    def create(mine: Sequence[str]) -> None:
        catalog = RestCatalog(url)
        for name in mine:
            catalog.ask("POST", f"/namespaces/{NAMESPACE}/tables", {"name": name, "schema": SCHEMA})
        catalog.close()

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(create, [names[number::CLIENTS] for number in range(CLIENTS)]))


def _add_snapshots(url: str, name: str) -> None:
    """One commit of many snapshots, of whose files none exists."""
    catalog = RestCatalog(url)
    metadata = _load(catalog, name)["metadata"]
    updates: list[dict[str, Any]] = []
    for number in range(1, SNAPSHOTS + 1):
        snapshot = {
            "snapshot-id": number,
            "sequence-number": number,
            "timestamp-ms": metadata["last-updated-ms"] + number,
            "manifest-list": f"{metadata['location']}/metadata/snap-{number}.avro",
            "summary": {"operation": "append", "added-data-files": "3", "total-data-files": str(3 * number)},
            "schema-id": 0,
        }
        if number > 1:
            snapshot["parent-snapshot-id"] = number - 1
        updates.append({"action": "add-snapshot", "snapshot": snapshot})
        head = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": number}
        updates.append(head)
    body = {"requirements": [], "updates": updates}
    catalog.ask("POST", f"/namespaces/{NAMESPACE}/tables/{name}", body)
    catalog.close()


def _load(catalog: RestCatalog, name: str) -> Any:
    return catalog.ask("GET", f"/namespaces/{NAMESPACE}/tables/{name}")


ROWS: dict[str, Callable[[Lab], list[Row]]] = {"iceberg-commits": commit_rows, "iceberg-lists": list_rows}
