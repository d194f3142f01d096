"""Vacuums that die, and vacuums beside restores in many processes: a version that was committed has its files."""

from dataclasses import asdict
from typing import Any

import pytest

import deltalakedb as dl
from deltalakedb.exceptions import FilesVacuumedError
from deltalakedb.store import registry
from deltalakedb.store.registry import Head
from tests.faults.conftest import Place
from tests.faults.processes import run, start, together, well
from tests.faults.worker import rows
from tests.fixtures.sizes import sized

TABLE = "busy.events"


def arguments(place: Place, **config: Any) -> dict[str, Any]:
    return {**asdict(place), "warehouse": str(place.warehouse), "config": config}


def head_of(catalog: dl.Catalog) -> Head:
    with catalog.store.read() as conn:
        head = registry.read_head(conn, catalog.table(TABLE)._sql().row.table_id)
    assert head is not None
    return head


def overwrite(catalog: dl.Catalog, number: int) -> None:
    with catalog.begin() as tx:
        tx.write(TABLE, rows("w", number), mode="overwrite")


@pytest.mark.parametrize("step", ["vacuum.marked", "vacuum.deleted"])
def test_a_vacuum_that_dies_keeps_restores_away_until_another_one_has_run(place: Place, step: str) -> None:
    run("create", place=arguments(place), table=TABLE)
    with dl.connect(place.catalog, warehouse=str(place.warehouse)) as catalog:
        overwrite(catalog, 1)
        overwrite(catalog, 2)
        before = catalog.begin()
        before.restore(TABLE, 1)
    ended = start("vacuum", kill_at=step, place=arguments(place), table=TABLE).wait()
    assert (ended.code, ended.all_of("killed_at")) == (-9, [step])
    with dl.connect(place.catalog, warehouse=str(place.warehouse)) as catalog:
        assert (head_of(catalog).vacuumed_version, head_of(catalog).vacuum_count) == (2, 1)
        with pytest.raises(FilesVacuumedError):
            catalog.table(TABLE).restore(1)
        overwrite(catalog, 3)
        with catalog.store.write() as conn:  # as if the minute had passed for which it counts as running
            conn.run("delete_expired_leases", before_ms=2**62)
        catalog.table(TABLE).vacuum(0, dry_run=False, enforce_retention_duration=False)
        assert head_of(catalog).vacuum_count % 2 == 0
        catalog.table(TABLE).to_pyarrow_table()


def test_restores_beside_vacuums_leave_every_version_whole_that_they_made(place: Place) -> None:
    """Whatever is the newest version has all its files, at every moment that somebody looks."""
    run("create", place=arguments(place), table=TABLE)
    count = sized(12, 60)
    workers = [
        start("restore", place=arguments(place), table=TABLE, count=count, seed=1),
        start("restore", place=arguments(place), table=TABLE, count=count, seed=2),
        start("vacuum", place=arguments(place), table=TABLE, count=count // 2),
    ]
    looks = 0
    with dl.connect(place.catalog, warehouse=str(place.warehouse)) as catalog:
        while any(worker.process.is_alive() for worker in workers):
            with catalog.begin(tables=[TABLE]) as tx:
                table = tx.table(TABLE)
                _look(catalog, table)
                looks += 1
        ended = list(well(together(workers)))
        assert catalog.table(TABLE).to_pyarrow_table().num_rows % 3 == 0
        assert catalog.table(TABLE).repair(dry_run=True)["files_removed"] == []
        assert catalog.validate(TABLE).drift is None
    assert looks
    conflicts = {kind for one in ended for kind in one.all_of("conflict")}
    # Two restores state the protocol, which one of them has to find as it was.
    assert conflicts <= {
        "FilesVacuumedError", "ConcurrentAppendError", "ConcurrentDeleteReadError", "ProtocolChangedError",
    }  # fmt: skip


def _look(catalog: dl.Catalog, table: dl.DeltaTable) -> None:
    """Files of a version that is the newest one before and after they were looked for must be there."""
    version = table.version()
    missing = [uri for uri in table.file_uris() if not _exists(uri)]
    assert not missing or catalog.table(TABLE).version() != version, f"version {version} lacks {missing}"


def _exists(path: str) -> bool:
    from pathlib import Path

    return Path(path).exists()
