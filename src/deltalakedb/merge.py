"""TableMerger: `deltalake`'s class of the same name, which gathers the clauses of a merge and runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from .exceptions import DeltaError
from .operations.merge_request import Clause, Kind, MergeRequest

if TYPE_CHECKING:
    from .operations.target import Verb

RunVerb: TypeAlias = "Callable[[Verb], dict[str, Any]]"


def prepare_merge(request: MergeRequest, run: RunVerb) -> TableMerger:
    """A merge without clauses yet, of whatever the caller gave as its source; `run` is what makes a commit of it."""
    from .data import prepare_data

    _check_text(request.predicate, "the predicate of a merge")
    for name in ("max_spill_size", "max_temp_directory_size"):
        size = getattr(request, name)
        if size is not None and size < 0:
            raise OverflowError(f"{name} is a number of bytes, not {size}")
    try:
        reader = prepare_data(request.source)
    except TypeError as error:
        raise ValueError(str(error)) from error
    return TableMerger(replace(request, source=reader), run)


class TableMerger:
    """Clauses are tried in the order they are given, each kind by itself; the first whose predicate is true is used."""

    def __init__(self, request: MergeRequest, run: RunVerb) -> None:
        self._request = request
        self._run = run
        self._is_over = False

    def when_matched_update(self, updates: dict[str, str], predicate: str | None = None) -> TableMerger:
        """Set columns of a row of the target that a row of the source matches; values are SQL over both rows."""
        return self._with(Clause("matched", "update", _predicate(predicate), _values(updates)))

    def when_matched_update_all(
        self, predicate: str | None = None, except_cols: list[str] | None = None
    ) -> TableMerger:
        """Set every column that the source has too, but those of `except_cols`, to the source's value."""
        return self._with_all("matched", predicate, except_cols)

    def when_matched_delete(self, predicate: str | None = None) -> TableMerger:
        """Delete a row of the target that a row of the source matches."""
        return self._with(Clause("matched", "delete", _predicate(predicate)))

    def when_not_matched_insert(self, updates: dict[str, str], predicate: str | None = None) -> TableMerger:
        """Insert a row for a row of the source without a match; columns that are not set are null, or as computed."""
        return self._with(Clause("not_matched", "insert", _predicate(predicate), _values(updates)))

    def when_not_matched_insert_all(
        self, predicate: str | None = None, except_cols: list[str] | None = None
    ) -> TableMerger:
        """Insert a row of the source without a match, but for its columns in `except_cols`."""
        return self._with_all("not_matched", predicate, except_cols)

    def when_not_matched_by_source_update(self, updates: dict[str, str], predicate: str | None = None) -> TableMerger:
        """Set columns of a row of the target that no row of the source matches."""
        return self._with(Clause("not_matched_by_source", "update", _predicate(predicate), _values(updates)))

    def when_not_matched_by_source_delete(self, predicate: str | None = None) -> TableMerger:
        """Delete a row of the target that no row of the source matches."""
        return self._with(Clause("not_matched_by_source", "delete", _predicate(predicate)))

    def execute(self) -> dict[str, Any]:
        """Run the merge, once: the source may be a stream. What it did, in numbers."""
        from .operations.merge import merge

        if self._is_over:
            raise DeltaError(
                "this merge was executed before, and its source is used up; begin another one with merge()"
            )
        self._is_over = True
        return self._run(partial(merge, request=self._request))

    def _with_all(self, kind: Kind, predicate: str | None, except_cols: list[str] | None) -> TableMerger:
        action: Any = "update" if kind == "matched" else "insert"
        return self._with(Clause(kind, action, _predicate(predicate), None, frozenset(except_cols or ())))

    def _with(self, clause: Clause) -> TableMerger:
        self._request = replace(self._request, clauses=(*self._request.clauses, clause))
        return self


def _check_text(text: Any, what: str) -> None:
    if not isinstance(text, str):
        raise TypeError(f"{what} is SQL text, not {type(text).__name__}")


def _predicate(text: str | None) -> str | None:
    if text is not None:
        _check_text(text, "the predicate of a clause")
    return text


def _values(updates: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(updates, dict):
        raise TypeError(f"the columns a clause sets are a dict of names and SQL, not {type(updates).__name__}")
    for name, text in updates.items():
        _check_text(name, "the name of a column")
        _check_text(text, f"the value of {name}")
    return dict(updates)
