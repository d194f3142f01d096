"""TableMerger: `deltalake`'s class of the same name, which collects the clauses of a merge and runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from deltalakedb.exceptions import DeltaError
from deltalakedb.operations.merge_request import Clause, Kind, MergeRequest
from deltalakedb.runtime.arguments import check_number, check_settings, check_text

if TYPE_CHECKING:
    from deltalakedb.operations.target import Verb

RunVerb: TypeAlias = "Callable[[Verb], dict[str, Any]]"


def prepare_merge(request: MergeRequest, run: RunVerb) -> TableMerger:
    """Return a merge without clauses, from any source that exports rows; `run` commits it."""
    from deltalakedb.data import prepare_data

    check_text(request.predicate, required=True)
    check_number(request.max_spill_size)
    check_number(request.max_temp_directory_size)
    try:
        reader = prepare_data(request.source)
    except TypeError as error:
        raise ValueError(str(error)) from error
    return TableMerger(replace(request, source=reader), run)


class TableMerger:
    """The clauses of a merge. For each row, the first clause of the matching kind whose predicate is true applies."""

    def __init__(self, request: MergeRequest, run: RunVerb) -> None:
        self._request = request
        self._run = run
        self._is_over = False

    def when_matched_update(self, updates: dict[str, str], predicate: str | None = None) -> TableMerger:
        """Set columns of target rows that a source row matches; values are SQL over both rows."""
        return self._with(Clause("matched", "update", _predicate(predicate), _values(updates)))

    def when_matched_update_all(
        self, predicate: str | None = None, except_cols: list[str] | None = None
    ) -> TableMerger:
        """Set every column that the source has too, except `except_cols`, to the source's value."""
        return self._with_all("matched", predicate, except_cols)

    def when_matched_delete(self, predicate: str | None = None) -> TableMerger:
        """Delete target rows that a source row matches."""
        return self._with(Clause("matched", "delete", _predicate(predicate)))

    def when_not_matched_insert(self, updates: dict[str, str], predicate: str | None = None) -> TableMerger:
        """Insert source rows without a match; columns that are not set are null or computed."""
        return self._with(Clause("not_matched", "insert", _predicate(predicate), _values(updates)))

    def when_not_matched_insert_all(
        self, predicate: str | None = None, except_cols: list[str] | None = None
    ) -> TableMerger:
        """Insert source rows without a match, without their columns in `except_cols`."""
        return self._with_all("not_matched", predicate, except_cols)

    def when_not_matched_by_source_update(self, updates: dict[str, str], predicate: str | None = None) -> TableMerger:
        """Set columns of target rows that no source row matches."""
        return self._with(Clause("not_matched_by_source", "update", _predicate(predicate), _values(updates)))

    def when_not_matched_by_source_delete(self, predicate: str | None = None) -> TableMerger:
        """Delete target rows that no source row matches."""
        return self._with(Clause("not_matched_by_source", "delete", _predicate(predicate)))

    def execute(self) -> dict[str, Any]:
        """Run the merge and return its metrics. It runs only once, because the source may be a stream."""
        from deltalakedb.operations.merge import merge

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


def _predicate(text: str | None) -> str | None:
    check_text(text)
    return text


def _values(updates: Mapping[str, str]) -> dict[str, str]:
    check_settings(updates, required=True)
    return dict(updates)
