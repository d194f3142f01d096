"""What the fork server imports before it forks: the parts of the package that are loaded on first use."""

import pandas  # type: ignore[import-untyped]  # noqa: F401
import psycopg  # noqa: F401
import pyarrow.parquet  # noqa: F401

import deltalakedb.data
import deltalakedb.mirror.engine
import deltalakedb.store.dialects.duckdb
import deltalakedb.store.dialects.postgres
import deltalakedb.store.dialects.sqlite  # noqa: F401
