"""Opens the query engine for a statement, with the memory and the folder that the configuration gives it."""

from __future__ import annotations

from deltalakedb.config import load_config
from deltalakedb.data.engine import Engine
from deltalakedb.operations.target import Target


def open_engine(
    target: Target,
    *,
    memory_limit: int | None = None,
    max_temp_size: int | None = None,
    joins_as_written: bool = False,
) -> Engine:
    """An engine for one thread: `data.memory_limit` and `data.temp_folder` of the catalog, or of the environment.

    A statement may have limits of its own, in bytes.
    """
    config = target.config or load_config()
    return Engine(
        config.data_memory_limit if memory_limit is None else f"{memory_limit}B",
        config.data_temp_folder,
        max_temp_size=None if max_temp_size is None else f"{max_temp_size}B",
        joins_as_written=joins_as_written,
    )
