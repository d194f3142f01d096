"""The judge, started once for all tests of a process."""

from collections.abc import Iterator

import pytest

from tests.iceberg.metadata.judge import Judge


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    """Iceberg's Java; the first use downloads its jar from Maven Central into the Ivy cache, and compiles."""
    judge = Judge()
    yield judge
    judge.close()
