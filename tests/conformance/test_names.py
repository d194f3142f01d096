"""Names with anything in them: under all of them tables are made, found, renamed, listed, dropped and read."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import deltalake
import pytest

import deltalakedb as dl
from deltalakedb.catalog.catalog import Catalog
from deltalakedb.exceptions import TableExistsError, TableNameError, TableNotFoundError
from deltalakedb.storage.location import parse_location
from deltalakedb.store.names import TableName, quote_part
from tests.conformance.transacting import ids_of, numbers, open_catalog
from tests.fixtures.readers import DuckDB, Polars
from tests.fixtures.s3 import S3

AWKWARD = [
    "my-table", "a.b", "x/y", "`", "a``b`", "ß", "ΑΣ.b", "\u212a", "İ", "😀", "n" * 255, "ü" * 255, "100%", "%2F", ".",
    "..", " ", "a b", "_delta_log", "day=1", "a#b?c&d", "c:\\d", "it's", '"q"', "select * from t; --", "日本",
]  # fmt: skip


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(target, tmp_path) as opened:
        yield opened


def path_of(table: dl.DeltaTable) -> Path:
    return Path(parse_location(table.table_uri).path)


def test_a_table_may_be_called_anything(catalog: Catalog, tmp_path: Path) -> None:
    for number, part in enumerate(AWKWARD):
        name = f"s.{quote_part(part)}"
        with catalog.begin() as tx:
            tx.write(name, numbers(number))
        assert tx.result == {name: 0}
        table = catalog.table(str(TableName("S", part.lower())))
        assert (table.name, ids_of(table)) == (name, [number])
        assert path_of(table).parent == tmp_path / "lake" / "s"
        theirs = deltalake.DeltaTable(path_of(table))
        assert theirs.to_pyarrow_table().column("id").to_pylist() == [number]
        assert deltalake.DeltaTable(table.table_uri).version() == 0
    listed = [f"s.{quote_part(part)}" for part in AWKWARD]
    assert sorted(catalog.tables()) == sorted(listed)
    assert sorted(info.full_name for info in catalog.table_infos("s")) == sorted(listed)
    assert len(list((tmp_path / "lake" / "s").iterdir())) == len(AWKWARD)
    for name in listed:
        catalog.drop_table(name)
    assert catalog.tables() == []


def test_namespaces_may_be_called_anything(catalog: Catalog) -> None:
    for number, part in enumerate(AWKWARD):
        namespace = quote_part(part)
        inner = f"{namespace}.`in ner`"
        with catalog.begin() as tx:
            tx.write(f"{namespace}.t", numbers(number))
            tx.write(f"{inner}.t", numbers(number, number))
        assert catalog.tables(namespace.lower()) == [f"{namespace}.t", f"{inner}.t"]
        assert catalog.tables(f"{namespace}.`IN NER`") == [f"{inner}.t"]
        assert deltalake.DeltaTable(path_of(catalog.table(f"{inner}.t"))).to_pyarrow_table().num_rows == 2
    assert set(catalog.namespaces()) == {"default", *(quote_part(part) for part in AWKWARD)} | {
        f"{quote_part(part)}.`in ner`" for part in AWKWARD
    }


def test_a_dot_in_backticks_is_no_dot_between_parts(catalog: Catalog) -> None:
    names = ["s.`a.b`", "s.a.b", "`s.a`.b", "`s.a.b`"]
    with catalog.begin() as tx:
        for number, name in enumerate(names):
            tx.write(name, numbers(number))
    assert [ids_of(catalog.table(str(name))) for name in names] == [[0], [1], [2], [3]]
    assert len({path_of(catalog.table(str(name))) for name in names}) == 4
    assert catalog.tables("s") == ["s.`a.b`", "s.a.b"]
    assert catalog.tables("s.a") == ["s.a.b"]
    assert catalog.tables("`s.a`") == ["`s.a`.b"]
    assert catalog.tables("default") == ["default.`s.a.b`"]
    catalog.drop_table("s.`a.b`")
    with pytest.raises(TableNotFoundError, match=r"there is no table s\.`a\.b`; did you mean"):
        catalog.table("s.`a.b`")


def test_names_are_one_when_their_lower_case_is(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        for number, name in enumerate(["s.ß", "s.ss", "s.k", "s.`My-Table`", "Ü.t"]):
            tx.write(name, numbers(number))
    for name in ("s.ẞ", "S.SS", "s.\u212a", "s.my-table", "ü.T"):
        with pytest.raises(TableExistsError, match="exists already"):
            catalog.create_table(name, "id long")
    assert ids_of(catalog.table("s.ẞ")) == [0]
    assert ids_of(catalog.table("s.SS")) == [1]
    assert ids_of(catalog.table("s.\u212a")) == [2]
    assert catalog.table("S.MY-TABLE").name == "s.`My-Table`", "as it was typed first"
    with pytest.raises(TableExistsError):
        catalog.rename_table("s.ss", "s.`MY-TABLE`")


def test_tables_are_renamed_between_awkward_names(catalog: Catalog) -> None:
    catalog.create_table("s.t", "id long")
    before = "s.t"
    for part in AWKWARD:
        after = f"`new space`.{quote_part(part)}"
        catalog.rename_table(before, after)
        assert catalog.tables() == [after]
        assert catalog.history(after)[0]["operationParameters"] == {"from": before, "to": after}
        before = after
    catalog.rename_table(before, "`new space`.Plain")
    catalog.rename_table("`new space`.PLAIN", "`new space`.plain")
    assert catalog.tables() == ["`new space`.plain"]


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "name", ["a/b", "s.`a", "s.`a`b", "s.``", "s.`a\nb`", "`a\u2028`.t", "s.`\ud800`", f"s.`{'n' * 256}`"]
)
def test_a_name_against_the_rules_is_refused_before_anything_is_written(
    catalog: Catalog, tmp_path: Path, name: str
) -> None:
    catalog.create_table("s.t", "id long", location=tmp_path / "elsewhere")
    before = sorted(tmp_path.rglob("*"))
    attempts: list[Callable[[], object]] = [
        lambda: catalog.create_table(name, "id long"),
        lambda: catalog.rename_table("s.t", name),
        lambda: catalog.attach_table(tmp_path / "elsewhere", name),
        lambda: catalog.drop_table(name),
        lambda: catalog.begin(tables=[name]),
    ]
    for attempt in attempts:
        with pytest.raises(TableNameError):
            attempt()
    tx = catalog.begin()
    with pytest.raises(TableNameError):
        tx.write(name, numbers(1))
    tx.rollback()
    assert sorted(tmp_path.rglob("*")) == before
    assert catalog.tables() == ["s.t"]
    assert set(catalog.namespaces()) == {"default", "s"}


def test_every_reader_opens_every_folder(catalog: Catalog) -> None:
    duck = DuckDB()
    for number, part in enumerate(AWKWARD):
        with catalog.begin() as tx:
            tx.write(f"`Über / Raum`.{quote_part(part)}", numbers(number))
        path = path_of(catalog.table(str(TableName("`Über / Raum`", part))))
        for reader in (duck, Polars()):
            assert reader.latest(path).rows.column("id").to_pylist() == [number]
    duck.close()


def test_names_in_buckets_are_escaped_as_on_disk(target: str, s3: S3) -> None:
    with dl.connect(target, warehouse=s3.uri("lake")) as catalog:
        for number, part in enumerate(["x/y", "100%", "a b", "ß", "`"]):
            with catalog.begin() as tx:
                tx.write(f"s.{quote_part(part)}", numbers(number), storage_options=s3.storage_options)
            table = catalog.table(str(TableName("s", part)))
            assert ids_of(table) == [number]
            theirs = deltalake.DeltaTable(table.table_uri, storage_options=s3.storage_options)
            assert theirs.to_pyarrow_table().column("id").to_pylist() == [number]
        folders = {key.split("/")[2] for key in s3.list_keys()}
        assert folders == {"x~2Fy", "100~25", "a~20b", "~C3~9F", "~60"}


def test_a_name_in_backticks_is_no_path(catalog: Catalog, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL_CATALOG", target)
    with catalog.begin() as tx:
        tx.write("s.`x/y`", numbers(1))
        tx.write("`a/b`", numbers(2))
    for name, ids in (("s.`x/y`", [1]), ("`a/b`", [2])):
        table = dl.DeltaTable(name)
        assert ids_of(table) == ids
        table.close()
    dl.write_deltalake("s.`x/y`", numbers(3), mode="append")
    assert ids_of(catalog.table("s.`x/y`")) == [1, 3]


def test_an_instant_knows_names_as_they_were(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("`my space`.`a.b`", numbers(1))
    first = tx.txn_id
    catalog.rename_table("`my space`.`a.b`", "`my space`.`c/d`")
    then = catalog.at(first)
    assert then.tables("`MY SPACE`") == ["`my space`.`a.b`"]
    assert ids_of(then.table("`my space`.`A.B`")) == [1]


def test_a_catalog_is_rebuilt_from_names_old_and_new(catalog: Catalog, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with open_catalog(str(tmp_path / "lost.db"), tmp_path) as lost:
        for name in ("s.`a.b`", "`my ns`.`x/y`", "_s._t"):
            lost.create_table(name, "id long")
        lost.create_table("s.`my-table`", "id long")
        lost.rename_table("s.`my-table`", "s.`new-name`")
        before = lost.tables()
    for file in (lake / "s" / "my-table" / "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines:
            mark = line.get("commitInfo", {}).get("deltalakedb")
            if mark is not None:  # as releases before backticks wrote it
                mark["table"] = mark["table"].replace("`", "")
        file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    rebuilt = catalog.rebuild(lake)
    assert [one.was_named for one in rebuilt.tables] == [None] * 4
    assert catalog.tables() == before
    history = catalog.sql("select namespace, name from dl_tables where name like '%-%' order by from_ms").to_pylist()
    assert [tuple(row.values()) for row in history] == [("s", "my-table"), ("s", "new-name")]
