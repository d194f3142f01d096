"""What every test shares: the fixtures' homes and the two sizes in which property tests run."""

import os
import re
import shutil
from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.fixtures.sizes import FULL, engines_for_later, give_duckdb_one_thread, leave_engines_out

give_duckdb_one_thread()

pytest_plugins = [
    "tests.differential.shares",
    "tests.fixtures.catalogs",
    "tests.fixtures.golden",
    "tests.fixtures.handmade",
    "tests.fixtures.postgres",
    "tests.fixtures.readers",
    "tests.fixtures.s3",
    "tests.fixtures.spark",
]

# Databases behind a property make single examples slow now and then; that is no finding.
_SLOW_IS_FINE = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture)

settings.register_profile("ci", max_examples=25, derandomize=True, deadline=None, suppress_health_check=_SLOW_IS_FINE)
settings.register_profile(
    "soak", max_examples=2000, deadline=timedelta(minutes=1), suppress_health_check=_SLOW_IS_FINE, print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


_folders = count()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of the test's own, removed if the test passes: a whole run would leave gigabytes.

    Its name is used once in a process. A catalog that several tests share remembers who owns a location, so a folder
    must not have the name of one that was removed, as with pytest's own retention policy.
    """
    failures = request.session.testsfailed
    name = re.sub(r"\W", "_", request.node.name)[:30]
    folder = tmp_path_factory.mktemp(f"{name}{next(_folders)}", numbered=False)
    yield folder
    if request.session.testsfailed == failures:
        shutil.rmtree(folder, ignore_errors=True)


_SHARED = {"tables_by_spark": "golden tables", "readers": "readers"}
"""What takes long to make and is made once: tests on it stay in one process."""
_FIRST = (
    "test_compared.py", "golden tables", "test_statements.py", "readers", "test_spark_kills.py", "test_exactly_once.py",
    "test_random_scans.py", "test_sql_snapshot.py", "test_metadata_queries.py",
    "test_code_blocks.py", "test_catalog_model.py", "test_calls.py", "test_edges.py", "test_hidden_columns.py",
    "test_filters.py", "test_object_store.py", "test_incremental.py", "test_crashes.py", "test_lives_of_tables.py",
    "test_put_lock.py", "test_incremental_commits.py",
)  # fmt: skip
"""The groups and files that take longest are begun first, else one process would still be at one of them when the
others have ended."""


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whatever needs a JVM is marked so: `make test` runs those tests in two processes, where Spark starts once each.

    The tests of a file stay together, and those on what many files share. What runs on the engines in turn does so
    unless all is asked for, or a test by its name; of what runs on each engine, all but one is `slow`.
    """
    if not (FULL or os.environ.get("DL_TEST_PARTITIONED") or any("::" in chosen for chosen in config.args)):
        left = leave_engines_out(items)
        config.hook.pytest_deselected(items=left)
        outside = set(left)
        items[:] = [item for item in items if item not in outside]
        if not config.option.keyword:  # which may choose an engine
            for item in engines_for_later(items):
                item.add_marker(pytest.mark.slow)
    groups: dict[pytest.Item, str] = {}
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & {"spark", "readers", "bridge", "hadoop", "names"}:
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark") is not None:
            shared = [name for fixture, name in _SHARED.items() if fixture in fixtures]
            groups[item] = shared[0] if shared else item.path.name
            item.add_marker(pytest.mark.xdist_group(groups[item]))
    places = {name: place for place, name in enumerate(_FIRST)}
    items.sort(key=lambda item: places.get(groups.get(item, item.path.name), len(places)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Groups are a part of a test's id for pytest-xdist; one that a new pytest has lost is lost without a word."""
    if not getattr(session.config.option, "loadgroup", False):
        return
    for item in session.items:
        group = item.get_closest_marker("xdist_group")
        if group is not None and not item.nodeid.endswith(f"@{group.args[0]}"):
            raise pytest.UsageError(f"{item.nodeid} is not in its group: this pytest-xdist does not know this pytest")
