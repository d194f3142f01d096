"""The PySpark pipeline: sessions that commit through SQL, transactions over many tables, reads planned in SQL."""

from typing import TYPE_CHECKING

from deltalakedb.runtime.lazy import lazy_names

# Not lazy: the function `session` must exist before the module of that name is imported.
from deltalakedb.spark.session import PlannedScans, bridge_of, configure, planned_scans, session

if TYPE_CHECKING:
    from deltalakedb.spark.checks import SparkCheck, doctor
    from deltalakedb.spark.read import read_table
    from deltalakedb.spark.streaming import foreach_batch
    from deltalakedb.spark.transaction import SparkTransaction, begin
    from deltalakedb.spark.write import write_table

__all__ = [
    "PlannedScans",
    "SparkCheck",
    "SparkTransaction",
    "begin",
    "bridge_of",
    "configure",
    "doctor",
    "foreach_batch",
    "planned_scans",
    "read_table",
    "session",
    "write_table",
]

__getattr__ = lazy_names(
    __name__,
    {
        "SparkCheck": "deltalakedb.spark.checks",
        "SparkTransaction": "deltalakedb.spark.transaction",
        "begin": "deltalakedb.spark.transaction",
        "doctor": "deltalakedb.spark.checks",
        "foreach_batch": "deltalakedb.spark.streaming",
        "read_table": "deltalakedb.spark.read",
        "write_table": "deltalakedb.spark.write",
    },
)
