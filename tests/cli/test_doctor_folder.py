"""`dl doctor PATH` explains a folder to somebody who could not write there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import deltalakedb
from deltalakedb.mirror import detach, promote
from tests.cli.conftest import Dl
from tests.conformance.lives import foreign_append


def explain(dl: Dl, path: Path | str, *options: str) -> tuple[dict[str, Any], int]:
    result = dl("doctor", str(path), "--json", *options)
    (check,) = json.loads(result.stdout)
    return check, result.exit_code


def manage(catalog: str, folder: Path) -> None:
    with deltalakedb.connect(catalog, warehouse=str(folder)) as opened, opened.begin() as tx:
        tx.write("sales.bills", pa.table({"id": [1]}))


class Killed(BaseException):
    pass


def die_at(step: str, name: str) -> None:
    if step == name:
        raise Killed


def test_no_delta_table_at_all(dl: Dl, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in ("empty", "missing"):
        check, code = explain(dl, tmp_path / path)
        assert (check["name"], check["status"], code) == ("none", "failed", 1)
        assert "_delta_log" in check["advice"]


def test_a_plain_table_with_and_without_a_catalog(dl: Dl, lake: Path, catalog: str) -> None:
    for _ in range(2):
        check, code = explain(dl, lake)
        assert (check["name"], code) == ("plain", 0)
        assert "at version 2" in check["found"]
        assert "dl attach" in check["advice"]
        dl("init")
    assert not (lake / "_dldb").exists()
    assert Path(catalog).exists()


def test_a_catalog_that_is_not_there_is_named_and_not_made(dl: Dl, lake: Path, tmp_path: Path) -> None:
    result = dl("doctor", str(lake), "--catalog", str(tmp_path / "slip.db"))
    assert (result.exit_code, "slip.db" in result.stderr) == (0, True)
    assert not (tmp_path / "slip.db").exists()


def test_a_followed_table(dl: Dl, attached: Path) -> None:
    check, code = explain(dl, attached)
    assert (check["name"], code) == ("follower", 0)
    assert "`dl promote sales.orders`" in check["advice"]


def test_a_managed_table_is_explained_by_its_own_catalog(dl: Dl, catalog: str, tmp_path: Path) -> None:
    manage(catalog, tmp_path / "lake")
    check, code = explain(dl, tmp_path / "lake" / "sales" / "bills")
    assert (check["name"], check["status"], code) == ("managed", "ok", 0)
    assert "writer feature deltalakedb" in check["found"]
    assert "sales.bills" in check["found"]
    assert "`dl detach sales.bills`" in check["advice"]


def test_a_managed_table_is_explained_by_its_files_alone(
    dl: Dl, catalog: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has the folder, and not the catalog, learns which catalog it is, and where, from the notice."""
    manage(catalog, tmp_path / "lake")
    monkeypatch.delenv("DL_CATALOG")
    check, code = explain(dl, tmp_path / "lake" / "sales" / "bills")
    assert (check["name"], code) == ("fenced", 0)
    assert catalog in check["found"]
    (tmp_path / "lake" / "sales" / "bills" / "_dldb" / "README.txt").unlink()
    check, code = explain(dl, tmp_path / "lake" / "sales" / "bills")
    assert "managed by the catalog " in check["found"]


def test_a_table_of_another_catalog(dl: Dl, tmp_path: Path) -> None:
    manage(str(tmp_path / "other.db"), tmp_path / "lake")
    dl("init")
    check, code = explain(dl, tmp_path / "lake" / "sales" / "bills")
    assert (check["name"], check["status"], code) == ("fenced", "failed", 1)
    assert "not by this one" in check["found"]


def test_a_promotion_that_was_interrupted(dl: Dl, attached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as dying, deltalakedb.connect() as catalog:
        dying.setattr(promote, "reached", lambda name: die_at("promote.fence_put", name))
        with pytest.raises(Killed):
            catalog.promote_table("sales.orders")
    check, code = explain(dl, attached)
    assert (check["name"], check["status"], code) == ("half-promoted", "failed", 1)
    assert dl("promote", "sales.orders").exit_code == 0
    assert explain(dl, attached)[0]["name"] == "managed"


def test_a_log_with_a_gap_says_which_versions_are_missing(dl: Dl, attached: Path) -> None:
    log = attached / "_delta_log"
    for number in range(3, 7):
        write_deltalake(attached, pa.table({"id": [number], "day": ["d"], "amount": [1.0]}), mode="append")
    for version in (1, 2, 4):
        (log / f"{version:020d}.json").rename(log / f"{version}.moved")
    check, code = explain(dl, attached)
    assert (check["name"], check["status"], code) == ("gap", "failed", 1)
    assert "has a gap: versions 1 to 2, 4 are missing, its newest is 6" in check["found"]
    assert "put those files of _delta_log back" in check["advice"]
    for version in (1, 2):
        (log / f"{version}.moved").rename(log / f"{version:020d}.json")
    assert "has a gap: version 4 is missing, its newest is 6" in explain(dl, attached)[0]["found"]


def test_a_gap_in_the_log_of_a_managed_table_is_repaired(dl: Dl, attached: Path) -> None:
    assert dl("promote", "sales.orders").exit_code == 0
    (attached / "_delta_log" / f"{1:020d}.json").unlink()
    check, _ = explain(dl, attached)
    assert (check["name"], "version 1 is missing" in check["found"]) == ("gap", True)
    assert "`dl validate sales.orders --repair`" in check["advice"]
    assert dl("validate", "sales.orders", "--repair").exit_code == 0
    assert explain(dl, attached)[0]["name"] == "managed"


def test_a_log_that_cannot_be_read(dl: Dl, lake: Path, tmp_path: Path) -> None:
    (lake / "_delta_log" / f"{1:020d}.json").write_text('{"add": {"path": ')
    check, code = explain(dl, lake)
    assert (check["name"], check["status"], code) == ("unreadable", "failed", 1)
    assert "from a backup" in check["advice"]
    check, code = explain(dl, tmp_path / ("x" * 300))
    assert (check["name"], code) == ("unreadable", 1)
    assert "access" in check["advice"]


def test_a_managed_table_whose_fence_is_gone(dl: Dl, attached: Path, tmp_path: Path) -> None:
    """Its folder was put back from a copy that is older than the import."""
    shutil.copytree(attached, tmp_path / "copy")
    assert dl("promote", "sales.orders").exit_code == 0
    shutil.rmtree(attached)
    shutil.copytree(tmp_path / "copy", attached)
    check, code = explain(dl, attached)
    assert (check["name"], check["status"], code) == ("unfenced", "failed", 1)
    assert "this catalog manages it as sales.orders: its fence is gone" in check["found"]
    assert "dl validate --repair" in check["advice"]
    assert dl("validate", "sales.orders", "--repair").exit_code == 0
    assert explain(dl, attached)[0]["name"] == "managed"


def test_a_copy_of_a_managed_table_is_known_to_nobody(dl: Dl, catalog: str, tmp_path: Path) -> None:
    manage(catalog, tmp_path / "lake")
    shutil.copytree(tmp_path / "lake" / "sales" / "bills", tmp_path / "copy")
    check, code = explain(dl, tmp_path / "copy")
    assert (check["name"], check["status"], code) == ("unknown", "failed", 1)
    assert "this catalog put the fence there and knows no table here" in check["found"]
    assert "dl import --rebuild" in check["advice"]


@pytest.mark.parametrize("step", ["detach.committed", "detach.mirrored"])
def test_a_detach_that_was_interrupted(
    dl: Dl, catalog: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Before the fence is off in the files, and after it."""
    manage(catalog, tmp_path / "lake")
    folder = tmp_path / "lake" / "sales" / "bills"
    with monkeypatch.context() as dying, deltalakedb.connect() as opened:
        dying.setattr(detach, "reached", lambda name: die_at(step, name))
        with pytest.raises(Killed):
            opened.detach_table("sales.bills")
    check, code = explain(dl, folder)
    assert (check["name"], check["status"], code) == ("half-detached", "failed", 1)
    assert ("behind the writer feature" in check["found"]) is (step == "detach.committed")
    assert "`dl detach sales.bills` goes on where it was" in check["advice"]
    assert dl("detach", "sales.bills").exit_code == 0
    assert explain(dl, folder)[0]["name"] == "detached"


def test_a_frozen_table(dl: Dl, attached: Path, tmp_path: Path) -> None:
    assert dl("promote", "sales.orders").exit_code == 0
    foreign_append(attached, tmp_path / "scratch", 5)
    with deltalakedb.connect() as catalog, pytest.raises(deltalakedb.exceptions.ExternalWriterError):
        catalog.table("sales.orders").delete("id = 1")
    check, code = explain(dl, attached)
    assert (check["name"], check["status"], code) == ("frozen", "failed", 1)
    assert "dl mirror resolve sales.orders --adopt" in check["advice"]


def test_a_dropped_and_a_detached_table(dl: Dl, catalog: str, attached: Path, tmp_path: Path) -> None:
    manage(catalog, tmp_path / "warehouse")
    bills = tmp_path / "warehouse" / "sales" / "bills"
    assert dl("drop", "sales.bills").exit_code == 0
    check, code = explain(dl, bills)
    assert (check["name"], code) == ("dropped", 0)
    assert "`dl undrop sales.bills`" in check["advice"]
    assert dl("promote", "sales.orders").exit_code == 0
    assert dl("detach", "sales.orders").exit_code == 0
    check, code = explain(dl, attached)
    assert (check["name"], code) == ("detached", 0)
    write_deltalake(attached, pa.table({"id": [1], "day": ["2026-01-01"], "amount": [1.0]}), mode="append")


def test_for_people_it_is_a_line(dl: Dl, lake: Path) -> None:
    shown = dl("doctor", str(lake)).stdout
    assert "plain\tok\ta plain Delta table at version 2" in shown
    assert "pyarrow" not in shown
