"""Finds the files that may satisfy a predicate: indexed atoms, a driver for each alternative, one statement for all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

from deltalakedb.log.predicates.atoms import Atom, Column, Dnf, Unknown, Within
from deltalakedb.log.protocol.codec import to_json, to_sql_text
from deltalakedb.store.connection import LIVE, Connection, Row
from deltalakedb.store.dialects.pruner import PRUNERS, FileSource, IndexedAtom, Part, Pruner
from deltalakedb.store.queries import named_queries

LIVE_FILES = FileSource()

COUNT_CAPS = (256, 4096, 65_536)
"""Limits up to which candidates are counted to choose a plan's driver; the next limit is used if all reach this one."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """How one condition was used, in one of the predicate's alternatives."""

    alternative: str
    condition: str
    action: str
    kept: int | None = None
    pruned: int | None = None

    def __str__(self) -> str:
        counts = "" if self.kept is None else f" (alone it keeps {self.kept}, prunes {self.pruned})"
        start = f"{self.alternative}: " if self.alternative else ""
        return f"{start}{self.condition}: {self.action}{counts}"


@lru_cache(maxsize=1024)
def path_and_kind(column: Column) -> tuple[str, str]:
    """The path and kind of a Delta table's column in dl_bounds_columns."""
    return to_sql_text(to_json(list(column.physical_path))), str(column.kind)


@dataclass(slots=True)
class _Conjunct:
    """The atoms of one alternative. The driver finds candidates; those of `listed` atoms are intersected with them."""

    number: int
    items: list[IndexedAtom]
    driver: IndexedAtom | None = None
    listed: list[IndexedAtom] = field(default_factory=list)

    @property
    def finders(self) -> list[IndexedAtom]:
        return [self.driver, *self.listed] if self.driver is not None else []


class Candidates:
    """The files of one source that may satisfy a predicate in disjunctive normal form."""

    def __init__(
        self,
        conn: Connection,
        disjuncts: Dnf,
        scope: Mapping[str, int],
        source: FileSource = LIVE_FILES,
        key_of: Callable[[Column], tuple[str, str]] = path_and_kind,
    ) -> None:
        """`scope`: the parameters of the source's queries, `table_id` and `epoch` among them; `key_of`: path and
        kind of a column in dl_bounds_columns."""
        self._conn = conn
        self._pruner: Pruner = PRUNERS[conn.dialect.name]
        self._scope = scope
        self._source = source
        self._key_of = key_of
        self._unused: list[tuple[int, Atom]] = []
        """The atoms without bounds, by the number of their alternative."""
        self._names = name_alternatives(disjuncts)
        known = any(not isinstance(atom, Unknown) for atoms in disjuncts for atom in atoms)
        rows = conn.all("select_bounds_columns", table_id=scope["table_id"]) if known else []
        self._indexed = {(row["column_path"], row["kind"]): row for row in rows}
        self._conjuncts = [_Conjunct(n, self._index(n, atoms)) for n, atoms in enumerate(disjuncts)]
        self.steps = partial(_describe_steps, self._names, self._unused, self._conjuncts)
        """Describes how each condition was used, which few callers want to read; needs no connection."""

    def statement(self, column_list: str) -> Part:
        """The select of columns of the files, `f` (of Iceberg's files also of the snapshot's manifests, `s`)."""
        if all(conjunct.items for conjunct in self._conjuncts):
            self._choose_drivers()
            parts = [self._conjunct_part(conjunct) for conjunct in self._conjuncts]
            parameters = {name: value for part in parts for name, value in part.parameters.items()}
            # `union` without `all`: a file that several alternatives keep is returned once
            text = self._pruner.fetch(column_list, " union ".join(part.text for part in parts), self._source)
            return Part(text, {**self._scope_of(text), **parameters})
        # Some alternative may be true of any file.
        text = named_queries()[self._source.all_fetched].replace("{columns}", column_list)
        return Part(text, self._scope_of(text))

    def has_bounds(self, column: Column) -> bool:
        """Whether the index holds bounds of a column."""
        return self._row_of(column) is not None

    # -- which atoms have bounds

    def _index(self, number: int, atoms: Iterable[Atom]) -> list[IndexedAtom]:
        items: list[IndexedAtom] = []
        for atom in atoms:
            if isinstance(atom, Unknown):
                self._unused.append((number, atom))
                continue
            row = self._row_of(atom.column)
            if row is None:
                self._unused.append((number, atom))
                continue
            classes = tuple(json.loads(row["width_classes"]))
            items.append(IndexedAtom(atom, row["column_id"], row["first_file_id"], classes))
        return items

    def _row_of(self, column: Column) -> Row | None:
        row = self._indexed.get(self._key_of(column))
        return row if row is not None and row["first_file_id"] < LIVE else None

    # -- choosing the driver

    def _choose_drivers(self) -> None:
        """Makes the atom with the fewest candidates find the files; the others filter them."""
        contested: list[tuple[_Conjunct, list[IndexedAtom]]] = []
        for conjunct in self._conjuncts:
            probes = [item for item in conjunct.items if item.is_probe]
            conjunct.driver = probes[0] if probes else None
            if len(probes) > 1 and self._pruner.counts_first:
                contested.append((conjunct, probes))
        for cap in COUNT_CAPS:
            if not contested:
                return
            counts = iter(self._count_candidates([item for _, probes in contested for item in probes], cap))
            undecided = []
            for conjunct, probes in contested:
                counted = sorted((next(counts), place) for place in range(len(probes)))
                fewest, driver = counted[0]
                conjunct.driver = probes[driver]
                if fewest >= cap:
                    undecided.append((conjunct, probes))
                elif cap > COUNT_CAPS[0]:
                    limit = min(cap - 1, fewest * self._pruner.lookup_cost)
                    conjunct.listed = [probes[place] for count, place in counted[1:] if count <= limit]
            contested = undecided

    def _count_candidates(self, items: Sequence[IndexedAtom], cap: int) -> list[int]:
        template = named_queries()["plan_count"]
        parts = [self._pruner.candidates(item, f"n{place}_", self._source) for place, item in enumerate(items)]
        counted = [template.replace("{candidates}", part.text) + f" as n{place}" for place, part in enumerate(parts)]
        parameters = {name: value for part in parts for name, value in part.parameters.items()}
        text = f"select {', '.join(counted)}"
        (row,) = self._conn.sql(text, **self._scope_of(text), **parameters, cap=cap)
        return [int(row[f"n{place}"]) for place in range(len(items))]

    # -- the statement

    def _conjunct_part(self, conjunct: _Conjunct) -> Part:
        prefix = f"d{conjunct.number}"
        finders = conjunct.finders
        candidates = [
            self._pruner.candidates(item, f"{prefix}_f{place}_", self._source) for place, item in enumerate(finders)
        ]
        candidates = candidates or [Part(named_queries()[self._source.all_files])]
        filters = [item for item in conjunct.items if not any(item is finder for finder in finders)]
        conditions = [self._pruner.condition(item, f"{prefix}_{place}_") for place, item in enumerate(filters)]
        file_ids = " intersect ".join(f"select c.file_id from ({part.text}) c" for part in candidates)
        where = " and ".join(condition.text for condition in conditions)
        text = f"select c.file_id from ({file_ids}) c" + (f" where {where}" if where else "")
        return Part(
            text, {name: value for part in [*candidates, *conditions] for name, value in part.parameters.items()}
        )

    def _scope_of(self, text: str) -> dict[str, int]:
        return {name: value for name, value in self._scope.items() if f":{name}" in text}

    # -- explain

    def explained(self, num_files: int, counted: bool) -> list[PlanStep]:
        """How each condition was used; `counted`: with how many of the files it keeps by itself."""
        steps = self.steps()
        items = [item for conjunct in self._conjuncts for item in conjunct.items if item.is_probe]
        if not counted or not items:
            return steps
        counts = self._count_candidates(items, max(num_files, 1))
        kept = {str(item.atom): count for item, count in zip(items, counts, strict=True)}
        return [
            replace(step, kept=kept[step.condition], pruned=max(num_files - kept[step.condition], 0))
            if step.condition in kept
            else step
            for step in steps
        ]


def name_alternatives(disjuncts: Dnf) -> list[str]:
    total = len(disjuncts)
    return [f"alternative {number + 1} of {total}" for number in range(total)] if total > 1 else [""]


def _describe_steps(
    names: Sequence[str], unused: Sequence[tuple[int, Atom]], conjuncts: Sequence[_Conjunct]
) -> list[PlanStep]:
    """The steps of a plan, those of each alternative together."""
    steps: list[PlanStep] = []
    for number, atom in unused:
        if isinstance(atom, Unknown):
            steps.append(PlanStep(names[number], "not used", atom.reason))
        else:
            reason = f"{atom.column.name} has no bounds, nothing is pruned"
            steps.append(PlanStep(names[number], str(atom), reason))
    if all(conjunct.items for conjunct in conjuncts):  # otherwise all files are candidates
        for conjunct in conjuncts:
            for item in conjunct.items:
                action = _describe(item, finds=any(item is finder for finder in conjunct.finders))
                steps.append(PlanStep(names[conjunct.number], str(item.atom), action))
    return sorted(steps, key=lambda step: names.index(step.alternative))


def _describe(item: IndexedAtom, *, finds: bool) -> str:
    if finds:
        return f"finds the files by the bounds of {item.atom.column.name}"
    if isinstance(item.atom, Within) and item.atom.nan:
        return "only drops files of nothing but nulls: NaN is above every number, and statistics leave it out"
    return f"filters what was found by the bounds of {item.atom.column.name}"
