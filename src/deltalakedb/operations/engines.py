"""Opens the query engine for a statement, with the memory limit and temporary folder of the configuration."""

from __future__ import annotations

from typing import Final

from deltalakedb.data.engine import Engine
from deltalakedb.operations.target import Target
from deltalakedb.runtime.config import load_config

_LEAST_MEMORY: Final = 64 * 1024 * 1024
"""In bytes."""


def open_engine(
    target: Target,
    *,
    memory_limit: int | None = None,
    max_temp_size: int | None = None,
    joins_as_written: bool = False,
) -> Engine:
    """Open an engine for one thread, with `data.memory_limit` and `data.temp_folder` of the catalog or environment.

    A statement may pass its own limits, in bytes; the engine does not work with less than `_LEAST_MEMORY`.
    """
    config = target.config or load_config()
    return Engine(
        config.data_memory_limit if memory_limit is None else f"{max(memory_limit, _LEAST_MEMORY)}B",
        config.data_temp_folder,
        max_temp_size=None if max_temp_size is None else f"{max_temp_size}B",
        joins_as_written=joins_as_written,
    )
