"""Whoever mirrors, wherever and however often, writes the same bytes."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import deltalakedb as dl
from deltalakedb.log.protocol.actions import AddFile, AppTransaction
from tests.faults.conftest import Place
from tests.faults.reconcile import bring_level

DL = Path(sys.executable).with_name("dl")
TABLE = "näme.spaced out"
ENVIRONMENTS = (
    {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "PYTHONHASHSEED": "1"},
    {"TZ": "America/St_Johns", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "4711"},
)


def write(place: Place) -> Path:
    """Versions with all that could depend on where they are written: maps, text, numbers, times; not mirrored yet."""
    settings = {"mirror_mode": "off", "mirror_checkpoint_interval": 3}
    with dl.connect(place.catalog, warehouse=str(place.warehouse), **settings) as catalog:
        properties = {"delta.appendOnly": "false", "zulu": "ünïcode", "alpha": "1"}
        catalog.create_table(TABLE, "day date, ts timestamp, näme string, x double", ["day"], properties=properties)
        for number in range(4):
            values = {
                "day": pa.array([number, number + 1], pa.date32()),
                "ts": pa.array([number * 10**6, -number], pa.timestamp("us", tz="UTC")),
                "näme": ["a\u2028b", None],
                "x": [0.1 + number, float("nan")],
            }
            with catalog.begin(message="grüße") as tx:
                tx.write(TABLE, pa.table(values), mode="append")
        tagged = AddFile("p x/é.parquet", {"day": None}, 5, 7, True, '{"numRecords":1}', {"z": "1", "a": None})
        with catalog.begin() as tx:
            tx.commit_actions(TABLE, [tagged, AppTransaction("app", 3, 4)], operation="TAGS")
        return Path(catalog.table(TABLE).table_uri.removeprefix("file://").replace("%20", " "))


def mirror(place: Place, environment: dict[str, str]) -> None:
    line = [str(DL), "mirror", "once", "--catalog", place.catalog]
    settings = {**os.environ, "DL_MIRROR_CHECKPOINT_INTERVAL": "3", **environment}
    ended = subprocess.run(line, env=settings, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def contents(log: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(log.iterdir())}


def stamps(log: Path) -> dict[str, tuple[int, int]]:
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in sorted(log.iterdir())}


def forget_the_mirror(place: Place) -> None:
    with dl.connect(place.catalog) as catalog, catalog.store.write() as conn:
        conn.sql("update dl_table_heads set mirrored_version = -1 returning table_id")
        conn.sql("delete from dl_checkpoints returning table_id")


@pytest.fixture
def log(place: Place) -> Path:
    write(place)
    with dl.connect(place.catalog) as catalog:
        return Path(catalog.table(TABLE).table_uri.removeprefix("file://")) / "_delta_log"


def test_two_processes_in_different_worlds_write_the_same_bytes(place: Place, log: Path) -> None:
    found = []
    for environment in ENVIRONMENTS:
        mirror(place, environment)
        found.append(contents(log))
        forget_the_mirror(place)
        shutil.rmtree(log)
    assert len([name for name in found[0] if name.endswith(".json")]) == 6
    assert [name for name in found[0] if name.endswith(".checkpoint.parquet")]
    assert found[0] == found[1]


def test_mirroring_again_writes_nothing(place: Place, log: Path) -> None:
    bring_level(place, mirror_checkpoint_interval=3)
    before = stamps(log)
    bring_level(place, mirror_checkpoint_interval=3)
    assert stamps(log) == before
    forget_the_mirror(place)
    bring_level(place, mirror_checkpoint_interval=3)
    after = stamps(log)
    commits = {name for name in before if name.endswith((".json", ".crc", ".parquet"))}
    assert {name: after[name] for name in commits} == {name: before[name] for name in commits}
