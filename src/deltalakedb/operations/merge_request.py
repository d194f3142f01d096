"""Owns what a caller asks of a merge: its source, its condition and its clauses, in the order they were given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from deltalakedb.log.codec import to_json

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.operations.parquet_options import Properties

Kind: TypeAlias = Literal["matched", "not_matched", "not_matched_by_source"]
ActionType: TypeAlias = Literal["update", "delete", "insert"]
_PARAMETERS: dict[Kind, str] = {
    "matched": "matchedPredicates",
    "not_matched": "notMatchedPredicates",
    "not_matched_by_source": "notMatchedBySourcePredicates",
}


@dataclass(frozen=True, slots=True)
class Clause:
    """What is done to the rows of one kind for which a predicate is true, and for which no earlier clause was."""

    kind: Kind
    action: ActionType
    predicate: str | None = None
    values: Mapping[str, str] | None = None
    """Columns of the target, and the expressions they get; None takes every column of the source of the same name."""
    except_columns: frozenset[str] = frozenset()

    def to_parameter(self, spell: Callable[[str], str]) -> dict[str, str]:
        """The clause as history shows it."""
        shown = {} if self.predicate is None else {"predicate": spell(self.predicate)}
        return {"actionType": self.action, **shown}


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """All of a merge but its target."""

    source: pa.RecordBatchReader
    predicate: str
    clauses: tuple[Clause, ...] = ()
    source_alias: str | None = None
    target_alias: str | None = None
    merge_schema: bool = False
    error_on_type_mismatch: bool = True
    writer_properties: Properties | None = None
    max_spill_size: int | None = None
    """Bytes of memory that the join may take before it goes to disk."""
    max_temp_directory_size: int | None = None
    streamed: bool = True
    """Whether the source counts as a stream; if not, its keys are noted in the commit, as `deltalake` does."""

    def of_kind(self, kind: Kind) -> list[tuple[int, Clause]]:
        """The clauses of a kind that can come to be used, each with its number; what follows one without a predicate
        never is."""
        found = []
        for number, clause in enumerate(self.clauses):
            if clause.kind == kind:
                found.append((number, clause))
                if clause.predicate is None:
                    break
        return found

    @property
    def deletes_every_match(self) -> bool:
        """Whether each matched row goes, whatever it matched: then it may match several rows of the source."""
        matched = self.of_kind("matched")
        return len(matched) == 1 and matched[0][1].action == "delete" and matched[0][1].predicate is None

    def to_parameters(self, spell: Callable[[str], str]) -> dict[str, Any]:
        """What history shows of the merge, in the words of Spark and `deltalake`."""
        clauses = {
            name: to_json([clause.to_parameter(spell) for clause in self.clauses if clause.kind == kind])
            for kind, name in _PARAMETERS.items()
        }
        return {"mergePredicate": spell(self.predicate), **clauses}
