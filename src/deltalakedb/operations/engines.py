"""Opens the query engine for a statement, with the memory and the folder that the configuration gives it."""

from __future__ import annotations

from deltalakedb.config import load_config
from deltalakedb.data.engine import Engine
from deltalakedb.operations.target import Target


def open_engine(target: Target) -> Engine:
    """An engine for one thread: `data.memory_limit` and `data.temp_folder` of the catalog, or of the environment."""
    config = target.config or load_config()
    return Engine(config.data_memory_limit, config.data_temp_folder)
