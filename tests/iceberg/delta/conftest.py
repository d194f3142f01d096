"""A served catalog, and the clients that read its Delta tables as Iceberg tables."""

from tests.iceberg.served import duck, endpoint, pyiceberg, uri  # noqa: F401  (fixtures)
