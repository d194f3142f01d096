from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import deltalakedb as dl
from deltalakedb.runtime.caller import Caller, acting_for, current_caller


def test_audit_names_the_caller_and_afterwards_the_setting(tmp_path: Path) -> None:
    with dl.connect(tmp_path / "c.db", warehouse=str(tmp_path / "lake"), actor="nightly") as catalog:
        with acting_for(Caller("ada", frozenset({"analysts"}))):
            catalog.create_table("s.t", "id long")
        catalog.create_table("s.u", "id long")
        assert [(row["actor"], row["table"]) for row in catalog.audit() if row["table"]] == [
            ("nightly", "s.u"),
            ("ada", "s.t"),
        ]


def test_a_caller_stays_in_its_thread() -> None:
    with acting_for(Caller("ada")), ThreadPoolExecutor(1) as pool:
        assert pool.submit(current_caller).result() is None
    assert current_caller() is None
