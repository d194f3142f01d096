"""Statements of Spark do the same on plain delta-spark and through the bridge, or docs/spark.md says why not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import deltalakedb as dl
import deltalakedb.spark as dls
from tests.fixtures.sizes import sized
from tests.spark.compared.running import Places, own_warehouse, run_script
from tests.spark.compared.scripts import Script, read_scripts
from tests.spark.peer import Peer

SCRIPTS = read_scripts()
FEW = SCRIPTS[::14]
"""The scripts of `make test`."""
MORE = [script for script in SCRIPTS if script not in FEW][:: sized(3, 1)]
"""Those that `make test-full` adds: a third of the others. `make soak` runs all."""
DOCS = Path(__file__).parents[2] / "docs" / "spark.md"
COMPARED = ("schema", "rows", "value", "raised", "conditions")
"""What must be equal. The words of an error may be others."""


class Sides:
    """The two sessions: plain delta-spark in a process of its own, and a bridged one here."""

    def __init__(self, folder: Path, catalog: dl.Catalog, spark: SparkSession) -> None:
        self._folder, self._spark = folder, spark
        self._warehouse = str(catalog.config.warehouse)
        self._warehouses = (self._warehouse, own_warehouse(spark))
        self._peer = Peer(folder / "peer")
        self._peer.ask("from tests.spark.compared.running import run_plain\nspark = sessions.plain()")

    def run(self, script: Script) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """What each statement did: on plain delta-spark, and through the bridge; both at once."""
        place = str(self._folder / "plain" / script.database)
        self._peer.tell(f"answer = run_plain(spark, {script.name!r}, {place!r})")
        lake = f"dldb:///file{self._warehouse}/{script.database}_paths"
        places = Places(self._folder / "bridged" / script.database, lake, self._warehouses)
        ours = run_script(self._spark, script, places)
        plain: list[dict[str, Any]] = self._peer.answer()
        return plain, ours

    def close(self) -> None:
        self._peer.close()


@pytest.fixture(scope="module")
def sides(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    assert spark.version
    folder = tmp_path_factory.mktemp("compared")
    with dl.connect(folder / "catalog.db", warehouse=str(folder / "lake")) as catalog:
        both = Sides(folder, catalog, dls.session(catalog))
        yield both
        both.close()


def documented() -> list[str]:
    """The titles of the differences that docs/spark.md lists: the first column of the table under its heading."""
    section = DOCS.read_text().partition("## Differences from plain delta-spark\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    return [row.split("|")[1].strip() for row in rows[1:]]


def check(script: Script, sides: Sides) -> None:
    """A statement does the same on both sides, unless it is marked; at the end the tables are the same."""
    plain, ours = sides.run(script)
    wrong = []
    for statement, theirs, own in zip(script.statements, plain, ours, strict=False):
        if _is_same(theirs, own) and statement.differs is not None:
            wrong.append(f"no longer differs, take the mark away: {statement.text}")
        if not _is_same(theirs, own) and statement.differs is None:
            wrong.append(f"{statement.text}\n  plain:   {show(theirs)}\n  bridged: {show(own)}")
    tables, own_tables = (
        {result["statement"]: result for result in results[len(script.statements) :]} for results in (plain, ours)
    )
    for name in tables.keys() | own_tables.keys():
        theirs, own = tables.get(name, {}), own_tables.get(name, {})
        if not _is_same(theirs, own):
            wrong.append(f"at the end, {name}\n  plain:   {show(theirs)}\n  bridged: {show(own)}")
    assert not wrong, "\n".join([script.name, *wrong])


def _is_same(theirs: dict[str, Any], own: dict[str, Any]) -> bool:
    return all(theirs.get(key) == own.get(key) for key in COMPARED)


def show(result: dict[str, Any]) -> str:
    return str({key: value for key, value in result.items() if key != "statement"})[:2000]


@pytest.mark.parametrize("script", FEW, ids=[script.database for script in FEW])
def test_it_does_the_same_as_plain_delta_spark(script: Script, sides: Sides) -> None:
    check(script, sides)


@pytest.mark.slow
@pytest.mark.parametrize("script", MORE, ids=[script.database for script in MORE])
def test_more_scripts_do(script: Script, sides: Sides) -> None:
    check(script, sides)


def test_every_documented_difference_is_shown_by_a_statement_and_the_other_way_round() -> None:
    shown = {statement.differs for script in SCRIPTS for statement in script.statements} - {None}
    listed = documented()
    assert len(set(listed)) == len(listed)
    assert shown == set(listed)


def test_there_are_many_statements_and_no_script_is_there_twice() -> None:
    assert sum(len(script.statements) for script in SCRIPTS) > 1000
    assert len({script.database for script in SCRIPTS}) == len(SCRIPTS)
    assert all(re.fullmatch(r"\w{1,60}", script.database) for script in SCRIPTS)
