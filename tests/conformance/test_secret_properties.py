"""A credential cannot be set as a property or a comment, on any way in; what others have set is taken as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import deltalakedb
from deltalakedb import Catalog, CatalogTransaction
from deltalakedb.exceptions import ConfigError, DeltaError
from deltalakedb.log.protocol.actions import Format, Metadata
from tests.conformance.transacting import numbers, open_catalog, row_counts

SECRET = "hunter2-hunter2"
PROPERTIES = {"loader.password": SECRET}
COMMENT = f"loaded from postgresql://ann:{SECRET}@db/sales"
NOTED = pa.schema([pa.field("note", pa.string(), metadata={"comment": COMMENT})])


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(target, tmp_path) as opened:
        opened.create_table("s.t", "id long")
        yield opened


def _set_by_action(tx: CatalogTransaction, **properties: str) -> None:
    table = tx.table("s.t")
    known, schema = table.metadata(), table.schema().to_json()
    tx.commit_actions("s.t", [Metadata(str(known.id), Format(), schema, (), properties, known.name)])


WAYS: dict[str, Callable[[Catalog], Any]] = {
    "create with properties": lambda cat: cat.create_table("s.new", "id long", properties=PROPERTIES),
    "create with a comment": lambda cat: cat.create_table("s.new", "id long", description=COMMENT),
    "create with a comment on a column": lambda cat: cat.create_table("s.new", NOTED),
    "set properties": lambda cat: cat.set_properties("s.t", PROPERTIES),
    "add a column": lambda cat: cat.add_columns("s.t", NOTED),
    "alter properties": lambda cat: cat.table("s.t").alter.set_table_properties(PROPERTIES, raise_if_not_exists=False),
    "alter the description": lambda cat: cat.table("s.t").alter.set_table_description(COMMENT),
    "alter a column": lambda cat: cat.table("s.t").alter.set_column_metadata("id", {"comment": COMMENT}),
    "write a new table": lambda cat: deltalakedb.write_deltalake(
        f"{cat.uri}?table=s.new" if "?" not in str(cat.uri) else f"{cat.uri}&table=s.new",
        numbers(1),
        configuration={"deltalakedb.password": SECRET},
    ),
}


@pytest.mark.in_turn
@pytest.mark.parametrize("way", WAYS)
def test_a_credential_is_refused_and_written_nowhere(catalog: Catalog, way: str) -> None:
    before = row_counts(catalog)
    with pytest.raises(ConfigError, match="storage_options") as raised:
        WAYS[way](catalog)
    assert SECRET not in str(raised.value)
    assert row_counts(catalog) == before


def test_finished_actions_are_judged_at_the_commit(catalog: Catalog) -> None:
    before = row_counts(catalog)
    tx = catalog.begin()
    _set_by_action(tx, **PROPERTIES)
    with pytest.raises(ConfigError, match=r"loader\.password") as raised:
        tx.commit()
    assert SECRET not in str(raised.value)
    assert row_counts(catalog) == before


def test_a_refused_statement_leaves_the_transaction_as_it_was(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        with pytest.raises(ConfigError):
            tx.set_properties("s.t", PROPERTIES)
        tx.set_properties("s.t", {"owner": "ann"})
    assert catalog.table("s.t").metadata().configuration == {"owner": "ann"}


def test_a_plain_path_refuses_credentials_too(tmp_path: Path) -> None:
    table = deltalakedb.DeltaTable.create(tmp_path / "t", "id long")
    with pytest.raises(ConfigError, match="storage_options"):
        table.alter.set_table_properties(PROPERTIES, raise_if_not_exists=False)
    assert table.version() == 0


def test_a_table_of_others_keeps_what_they_have_set(catalog: Catalog, tmp_path: Path) -> None:
    theirs = deltalake.DeltaTable.create(
        tmp_path / "theirs",
        deltalake.Schema.from_arrow(pa.schema([("id", pa.int64())])),
        configuration=PROPERTIES,
        description=COMMENT,
        raise_if_key_not_exists=False,
    )
    deltalake.write_deltalake(theirs, numbers(1), mode="append")
    table = catalog.import_table(str(tmp_path / "theirs"), "s.theirs")
    assert table.metadata().configuration == PROPERTIES
    catalog.set_properties("s.theirs", {"owner": "ann"})
    catalog.add_columns("s.theirs", "note string")
    assert catalog.table("s.theirs").metadata().configuration == {**PROPERTIES, "owner": "ann"}
    with pytest.raises(ConfigError):
        catalog.set_properties("s.theirs", {"loader.password": "another-secret"})
    catalog.table("s.theirs").restore(0)
    assert catalog.table("s.theirs").metadata().configuration == PROPERTIES


@pytest.mark.parametrize("value", ["true", "false", True])
def test_drop_protection_is_a_switch(catalog: Catalog, value: str | bool) -> None:
    catalog.set_properties("s.t", {"drop_protection": value})
    assert catalog.table("s.t").metadata().configuration == {"drop_protection": str(value).lower()}
    catalog.table("s.t").alter.set_table_properties({"drop_protection": "false"})
    catalog.create_table("s.kept", "id long", properties={"drop_protection": value})
    assert catalog.table("s.kept").metadata().configuration["drop_protection"] == str(value).lower()


@pytest.mark.in_turn
def test_drop_protection_takes_no_other_value(catalog: Catalog) -> None:
    with pytest.raises(ConfigError, match="drop_protection is true or false, not 'maybe'"):
        catalog.set_properties("s.t", {"drop_protection": "maybe"})
    with pytest.raises(ConfigError, match="drop_protection"):
        catalog.create_table("s.new", "id long", properties={"drop_protection": 1})
    tx = catalog.begin()
    _set_by_action(tx, drop_protection="")
    with pytest.raises(DeltaError, match="either true or false"):
        tx.commit()
