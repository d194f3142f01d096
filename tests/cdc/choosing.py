"""A capture that a TOML file describes, copied and followed step by step and without Spark."""

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from deltalakedb.cdc.apply.batches import commit_progress
from deltalakedb.cdc.apply.landing import commit_landing, prepare_landing
from deltalakedb.cdc.control import load_capture
from deltalakedb.cdc.copy.copy_task import CopyTask, run_task
from deltalakedb.cdc.run.choice_changes import ChoicePlan, apply_choice
from deltalakedb.cdc.run.configured import load_settings
from deltalakedb.cdc.run.opening import add_tables, open_capture
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.source.copy_plan import plan_copy, session_at
from deltalakedb.cdc.source.postgres import connect
from deltalakedb.cdc.source.publication import look_at_publication
from deltalakedb.cdc.source.slots import advance_slot, exported_snapshot
from deltalakedb.log.protocol.actions import AddFile
from tests.cdc.conftest import Lake, Source
from tests.cdc.evolving import Evolving

KEY = "a key of the tests, and of nobody else"
HEADER = """\
[cdc]
source = "{source}"
publication = "shop"
slot = "dl_shop"
mask_key = "{key}"
"""
SHOP = (
    "create schema hr",
    "create table users (id int primary key, email text, phone text, name text, born date, country text)",
    "insert into users select n, 'mail-' || n, 'call-' || n, 'name-' || n, date '2000-01-01' + n, 'c' || n % 3 "
    "from generate_series(1, 30) n",
    "create table hr.staff (id int primary key, salary int, note text)",
    "insert into hr.staff values (1, 987650001, 'private-1'), (2, null, null)",
    "create table tmp_load (id int primary key)",
    "create publication shop for all tables",
)
MASKS = """
namespace = "lake"
exclude = ["*.tmp_*"]

[[cdc.rules]]
tables = "users"
exclude_columns = ["phone"]
mask = { email = "hash", name = { constant = "somebody" }, born = "null" }

[[cdc.rules]]
tables = "hr.*"
namespace = "people.{schema}"
name = "{table}_now"
mask = { salary = { constant = 0 } }
exclude_columns = "no*"
"""


def masked(text: str | None, key: str = KEY) -> str | None:
    """What a hash makes of a value, worked out here once more."""
    return None if text is None else hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def settings_from(toml: str, source: Source, folder: Path, key: str = KEY) -> CaptureSettings:
    """The settings that a file has, read as `dl cdc` reads them. What is no table of TOML goes into [cdc]."""
    file = folder / "capture.toml"
    file.write_text(HEADER.format(source=source.dsn, key=key) + toml)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DL_CONFIG", str(file))
        return load_settings({})


class Choosing(Evolving):
    """Takes in the tables that wait for a copy, and all that is committed."""

    def copy(self) -> list[str]:
        """Copy what waits for it, as the runner does; the tables that were copied."""
        catalog, settings = self.lake.catalog, self.settings
        self.capture = add_tables(catalog, self.conn, self.capture, settings)
        with exported_snapshot(settings.source) as (snapshot, lsn):
            self._bring_to(lsn)
            with session_at(settings.source, snapshot) as conn:
                published = look_at_publication(conn, settings, self.capture)
                pending = [one for one in published.tables if self.capture.tables[one.source].stage == "pending"]
                plans = [plan_copy(conn, table, settings.publication, 2) for table in pending]
            for plan in plans:
                landing = prepare_landing(catalog, plan.table, settings)
                adds: list[AddFile] = []
                for ranges in plan.tasks:
                    result = run_task(CopyTask.of(landing, settings, ranges, snapshot=snapshot))
                    assert result.failure is None, result.failure
                    adds += result.adds
                self.capture = commit_landing(catalog, self.capture, landing, adds, settings)
        return [table.source for table in pending]

    def _bring_to(self, lsn: int) -> None:
        if not self.capture.streaming:
            self.capture = commit_progress(self.lake.catalog, self.capture, lsn)
            advance_slot(self.conn, self.settings.slot, lsn)
            return
        for _ in range(60):
            if self._step(lsn):
                return
        raise AssertionError("the range does not come to its end")

    def apply(self, settings: CaptureSettings) -> ChoicePlan:
        """`dl cdc apply`, and what the next start does."""
        plan, _ = apply_choice(self.lake.catalog, settings)
        capture = load_capture(self.lake.catalog, settings)
        assert capture is not None
        self.settings, self.capture = settings, capture
        return plan


@contextmanager
def choosing(lake: Lake, source: Source, settings: CaptureSettings) -> Iterator[Choosing]:
    """A capture whose tables are copied."""
    with connect(source.dsn) as conn:
        made = Choosing(lake, settings, conn, open_capture(lake.catalog, conn, settings))
        made.copy()
        yield made


def lake_texts(lake: Lake) -> Iterator[tuple[Path, str]]:
    """Everything that is in a file of the lake, its log and its catalog, as text."""
    for path in sorted(lake.warehouse.parent.rglob("*")):
        if path.suffix == ".parquet":
            for row in pq.read_table(path, partitioning=None).to_pylist():
                yield path, repr(row)
        if path.is_file() and path.name != "capture.toml":
            yield path, path.read_bytes().decode("latin-1")


def check_hidden(lake: Lake, secrets: Mapping[str, str]) -> None:
    """None of the values, given with what they are of, is in any file."""
    for path, text in lake_texts(lake):
        for secret, what in secrets.items():
            assert secret not in text, f"{what} is in {path}"


def rows(lake: Lake, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lake.catalog.table(name).to_pyarrow_table().to_pylist()
    return found


def history(lake: Lake, name: str) -> list[dict[str, Any]]:
    """The changes of a table in their order."""
    return sorted(rows(lake, name), key=lambda row: (row["_lsn"], row["_ordinal"]))
