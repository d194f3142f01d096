"""Change capture: the changes of a Postgres database become tables of the lake, whole transactions at a time."""

from typing import TYPE_CHECKING

from deltalakedb.cdc.report import BatchDone, CaptureReport

# Not lazy: the function `run` must be there before anybody imports the module of that name.
from deltalakedb.cdc.run import run
from deltalakedb.lazy import lazy_names

if TYPE_CHECKING:
    from deltalakedb.cdc.settings import CaptureSettings
    from deltalakedb.cdc.source import register

__all__ = ["BatchDone", "CaptureReport", "CaptureSettings", "register", "run"]

__getattr__ = lazy_names(
    __name__,
    {"CaptureSettings": "deltalakedb.cdc.settings", "register": "deltalakedb.cdc.source"},
)
