"""What every test shares: the fixtures' homes and the two sizes in which property tests run."""

import os
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = [
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


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever needs a JVM is marked so: `make test` runs those tests in two processes, where Spark starts once each.

    Those on tables that Spark makes for many tests stay together, away from those of the pipeline on Spark. Those with
    another Spark beside the shared one make both processes take about the same time.
    """
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & {"spark", "readers", "bridge", "hadoop", "names"}:
            item.add_marker(pytest.mark.spark)
            in_pipeline = item.path.parent.name in ("spark", "faults") and item.path.name != "test_two_processes.py"
            if in_pipeline and "tables_by_spark" not in fixtures:
                item.add_marker(pytest.mark.pipeline)
