"""The benchmark of the endpoint runs, at a size that proves no more than that it does, and meets no error."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.endpoint import KINDS, run_load, serving


@pytest.mark.parametrize("kind", KINDS)
def test_the_benchmark_of_many_clients_meets_no_error(kind: str, postgres_dsn: str, tmp_path: Path) -> None:
    with serving(postgres_dsn, tmp_path / "lake") as (url, token):
        load = run_load(url, token, kind, clients=6, seconds=0.5, processes=1)
    assert load.errors == []
    assert set(load.latencies_ms) - {"taken"} == {"log", "read" if kind == "read" else "commit"}
    assert len(load.latencies_ms.get("taken", [])) == load.taken
    assert load.requests_per_second > 1
    assert load.taken == 0 or kind == "shared"
    assert "0 errors" in load.text
