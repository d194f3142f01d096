"""Whether two answers, one of each library, are the same: rows without their order, shapes, errors and warnings."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tests.fixtures.readers import sort_rows

MEASURED = ("time", "Time", "timestamp", "duration", "size", "Size", "bytes", "Bytes", "engineInfo", "clientVersion")
"""A number whose name has one of these in it is measured, or is the writer's own affair: only its type is compared."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call came to: a value or an error, and the categories of the warnings it gave."""

    value: Any
    error: Exception | None
    warned: tuple[str, ...]

    @property
    def error_names(self) -> list[str]:
        """The error's class and those it derives from, by name."""
        return [] if self.error is None else [kind.__name__ for kind in type(self.error).__mro__]


def attempt(call: Callable[[], Any]) -> Outcome:
    """Run a call; streams are read to their end, since their errors belong to it."""
    value: Any = None
    caught: Exception | None = None
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            value = to_plain(call())
        except Exception as error:
            caught = error
    ours = {"DeprecationWarning", "FutureWarning", "UserWarning", "RuntimeWarning"}
    warned = sorted({one.category.__name__ for one in heard} & ours)
    return Outcome(value, caught, tuple(warned))


def to_plain(value: Any) -> Any:
    """The same without what is a library's own: anything of Arrow becomes a pyarrow table, frames too."""
    if isinstance(value, pa.Table):
        return value
    if hasattr(value, "__arrow_c_stream__") and not hasattr(value, "load_as_version"):
        return pa.RecordBatchReader.from_stream(value).read_all()
    if type(value).__name__ == "DataFrame":
        return pa.Table.from_pandas(value, preserve_index=False)
    if hasattr(value, "to_table") and hasattr(value, "get_fragments"):
        return value.to_table()
    return value


def check_same_rows(theirs: pa.Table, ours: pa.Table, where: str, *, ordered: bool = True) -> None:
    """The same columns of the same types in the same order (unless not `ordered`), and the same rows in any."""
    names = (ours.column_names, theirs.column_names)
    given, expected_names = names if ordered else tuple(sorted(each) for each in names)
    assert given == expected_names, f"{where}: columns {given} instead of {expected_names}"
    expected = sort_rows(theirs)
    found = sort_rows(ours)
    assert found.schema.equals(expected.schema), f"{where}: other types\n{found.schema}\ninstead of\n{expected.schema}"
    assert found.to_pylist() == expected.to_pylist(), f"{where}: other rows"


def check_same_error(theirs: Outcome, ours: Outcome, where: str) -> None:
    """Neither fails, or ours raises the class theirs does, or one that derives from a class of that name."""
    if theirs.error is None:
        if ours.error is not None:
            raise AssertionError(f"{where}: only deltalakedb fails: {ours.error!r}") from ours.error
        return
    assert ours.error is not None, f"{where}: only deltalake fails: {theirs.error!r}; deltalakedb gave {ours.value!r}"
    kind = type(theirs.error).__name__
    if kind not in ours.error_names:
        raise AssertionError(f"{where}: {ours.error!r} instead of {theirs.error!r}") from ours.error


def check_same_value(theirs: Any, ours: Any, where: str, *, exactly: bool) -> None:
    """The same shape; with `exactly` the same numbers and texts too, except where they are measured."""
    if isinstance(theirs, pa.Table):
        assert isinstance(ours, pa.Table), f"{where}: {type(ours)} instead of rows"
        check_same_rows(theirs, ours, where)
    elif isinstance(theirs, Mapping):
        assert isinstance(ours, Mapping), f"{where}: {type(ours)} instead of a mapping"
        assert set(ours) == set(theirs), f"{where}: keys {sorted(ours)} instead of {sorted(theirs)}"
        for key, value in theirs.items():
            measured = any(part in str(key) for part in MEASURED)
            check_same_value(value, ours[key], f"{where}[{key!r}]", exactly=exactly and not measured)
    elif isinstance(theirs, Sequence) and not isinstance(theirs, str | bytes):
        assert isinstance(ours, Sequence), f"{where}: {type(ours)} instead of a sequence"
        if exactly:
            assert len(ours) == len(theirs), f"{where}: {ours!r} instead of {theirs!r}"
            for place, (one, other) in enumerate(zip(theirs, ours, strict=True)):
                check_same_value(one, other, f"{where}[{place}]", exactly=True)
    elif hasattr(theirs, "to_json") and hasattr(ours, "to_json"):
        assert json.loads(ours.to_json()) == json.loads(theirs.to_json()), f"{where}: another schema"
    elif isinstance(theirs, bool | int | float | str | bytes | None):
        assert type(ours) is type(theirs), f"{where}: {ours!r} instead of {theirs!r}"
        if exactly:
            assert ours == theirs, f"{where}: {ours!r} instead of {theirs!r}"
    else:  # an object of the library: DeltaTable, TableMerger, ...
        assert type(ours).__name__ == type(theirs).__name__, f"{where}: {type(ours)} instead of {type(theirs)}"


def check_same(theirs: Outcome, ours: Outcome, where: str, *, exactly: bool = False, warned: bool = True) -> None:
    """Compare whole outcomes."""
    check_same_error(theirs, ours, where)
    if theirs.error is None:
        check_same_value(theirs.value, ours.value, where, exactly=exactly)
    if warned:
        assert ours.warned == theirs.warned, f"{where}: warnings {ours.warned} instead of {theirs.warned}"
