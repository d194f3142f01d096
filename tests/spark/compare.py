"""Rows of many DataFrames in one job each, in a form that can be compared whatever their columns are."""

from collections import Counter
from collections.abc import Hashable, Mapping
from functools import reduce
from typing import TypeVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

_Key = TypeVar("_Key", bound=Hashable)


def rows_of(frame: DataFrame) -> Counter[str]:
    return rows_of_all({0: frame})[0]


def rows_of_all(frames: Mapping[_Key, DataFrame]) -> dict[_Key, Counter[str]]:
    """The rows of each, as JSON with all their nulls; one Spark job for all of them."""
    spelled = [
        frame.select(F.lit(place).alias("place"), F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("row"))
        for place, frame in enumerate(frames.values())
    ]
    found: list[Counter[str]] = [Counter() for _ in spelled]
    if spelled:
        for place, row in reduce(DataFrame.unionAll, spelled).collect():
            found[place][row] += 1
    return dict(zip(frames, found, strict=True))
