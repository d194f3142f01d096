"""The request of a merge: its source, its condition and its clauses, in the order they were given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from deltalakedb.log.protocol.codec import to_json

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
    """An action for the rows of one kind for which a predicate is true, unless an earlier clause applies to them."""

    kind: Kind
    action: ActionType
    predicate: str | None = None
    values: Mapping[str, str] | None = None
    """Target columns and their expressions; None sets every column that the source has under the same name."""
    except_columns: frozenset[str] = frozenset()

    def to_parameter(self, spell: Callable[[str], str]) -> dict[str, str]:
        """Return the clause as history shows it."""
        predicate = {} if self.predicate is None else {"predicate": spell(self.predicate)}
        return {"actionType": self.action, **predicate}


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """Everything about a merge except its target."""

    source: pa.RecordBatchReader
    predicate: str
    clauses: tuple[Clause, ...] = ()
    source_alias: str | None = None
    target_alias: str | None = None
    merge_schema: bool = False
    error_on_type_mismatch: bool = True
    writer_properties: Properties | None = None
    max_spill_size: int | None = None
    """Bytes of memory that the join may use before it spills to disk."""
    max_temp_directory_size: int | None = None
    streamed: bool = True
    """Whether the source counts as a stream; if not, the commit records its keys, as `deltalake` does."""

    def of_kind(self, kind: Kind) -> list[tuple[int, Clause]]:
        """Return the clauses of a kind with their numbers; those after a clause without a predicate are unreachable,
        and left out."""
        clauses = []
        for number, clause in enumerate(self.clauses):
            if clause.kind == kind:
                clauses.append((number, clause))
                if clause.predicate is None:
                    break
        return clauses

    @property
    def deletes_every_match(self) -> bool:
        """Whether every matched row is deleted: then a row may match several source rows."""
        matched = self.of_kind("matched")
        return len(matched) == 1 and matched[0][1].action == "delete" and matched[0][1].predicate is None

    def to_parameters(self, spell: Callable[[str], str]) -> dict[str, Any]:
        """Return the merge's parameters for history, with the names of Spark and `deltalake`."""
        clauses = {
            name: to_json([clause.to_parameter(spell) for clause in self.clauses if clause.kind == kind])
            for kind, name in _PARAMETERS.items()
        }
        return {"mergePredicate": spell(self.predicate), **clauses}
