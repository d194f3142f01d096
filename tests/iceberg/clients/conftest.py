"""An endpoint for Iceberg clients on a fresh catalog, and clients that are connected to it."""

from tests.iceberg.served import duck, endpoint, pyiceberg, uri  # noqa: F401  (fixtures)
