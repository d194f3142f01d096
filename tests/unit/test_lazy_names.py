"""Names that a package loads when they are first used must be where the package says."""

from importlib import import_module

import pytest

LAZY_PACKAGES = ("deltalakedb", *(f"deltalakedb.{room}" for room in ("catalog", "cdc", "serve", "spark", "store")))


@pytest.mark.parametrize("package", LAZY_PACKAGES)
def test_every_exported_name_is_found(package: str) -> None:
    module = import_module(package)
    assert module.__all__
    for name in module.__all__:
        assert getattr(module, name) is not None
