"""Change capture: copies the changes of a Postgres database into tables of the lake, in whole transactions."""

from typing import TYPE_CHECKING

from deltalakedb.cdc.run.report import BatchDone, CaptureReport

# Not lazy: the function `run` must exist before the module of that name is imported.
from deltalakedb.cdc.run.start import run
from deltalakedb.runtime.lazy import lazy_names

if TYPE_CHECKING:
    from deltalakedb.cdc.settings import CaptureSettings
    from deltalakedb.cdc.source.data_source import register

__all__ = ["BatchDone", "CaptureReport", "CaptureSettings", "register", "run"]

__getattr__ = lazy_names(
    __name__,
    {"CaptureSettings": "deltalakedb.cdc.settings", "register": "deltalakedb.cdc.source.data_source"},
)
