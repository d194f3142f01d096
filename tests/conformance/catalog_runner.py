"""Runs a history on a real catalog, notes what every step answers, and holds it against the model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

import deltalake

from deltalakedb import Catalog, CatalogTransaction
from deltalakedb.exceptions import CommitFailedError, LocationOwnedError, TableExistsError, TableNotFoundError
from deltalakedb.mirror.reconciler import Reconciler
from tests.conformance import catalog_performing as performing
from tests.conformance.catalog_checks import Checks
from tests.conformance.catalog_facts import Facts
from tests.conformance.catalog_model import Context, Dropped, Seen, State, is_refused
from tests.conformance.catalog_steps import (
    ALONE,
    PRELUDE,
    AppendElsewhere,
    Begin,
    Call,
    Commit,
    History,
    Reconcile,
    Restore,
    Rollback,
    Step,
    Swap,
    Undrop,
    answer,
    renames_of,
)
from tests.conformance.serial_orders import Mismatch, Unit, find_order, replay
from tests.conformance.transacting import numbers, open_catalog


@dataclass(slots=True)
class Open:
    """A transaction of a slot: what it has run, and the model's view of what it sees."""

    tx: CatalogTransaction
    unit: Unit
    view: State
    started: State
    deletions: int
    """How often files were deleted before it began."""
    changes: int
    """How often anything was changed before it began."""


class Runner:
    """A history on one database. Use it in a `with` block."""

    def __init__(self, history: History, target: str, root: Path) -> None:
        self.history = history
        self.root = root
        days = 7 if history.keeps_dropped else 0
        self.catalogs = [
            open_catalog(target, root, mirror_mode=mode, catalog_drop_retention=days) for mode in history.mirrors
        ]
        self.state = State()
        self.units: list[Unit] = []
        self.open: dict[int, Open] = {}
        self.checks = Checks(self.catalogs[0], root)
        self.facts: Facts = self.checks.look()
        self._seen: Facts | None = None
        """What the catalog holds, if the step at hand has looked already."""
        self._number = 0
        self._deletions = 0
        self._changes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for slot in [*self.open]:
            self.open.pop(slot).tx.rollback()
        for catalog in self.catalogs:
            catalog.close()

    def run(self) -> None:
        for step in (*PRELUDE, *self.history.steps):
            self.take(step)
        self.finish()

    def finish(self) -> None:
        """Give up what is open, let upkeep do what is left, and look at everything."""
        for slot in [*self.open]:
            self.take(Rollback(slot))
        for catalog in self.catalogs:
            catalog.mirror.flush()
        self.checks.at_end(self.state, lambda: self.take(Reconcile(0)))

    # -- steps

    def take(self, step: Step) -> None:
        self._number += 1
        self._seen = None
        opened = self.open.get(step.slot)
        if isinstance(step, Begin):
            self._begin(step.slot)
        elif isinstance(step, ALONE):
            self._run_alone(step)
        elif isinstance(step, Commit | Rollback):
            if opened is not None:
                self._end(step, self.open.pop(step.slot))
        elif opened is None:
            self._run_alone(step)
        else:
            for one in renames_of(step) if isinstance(step, Swap) else (step,):
                if self._run_in(opened, one)[0] != "ok":
                    break
        self.facts = self._seen or self.checks.look()
        self.checks.after_step(self.state, self.facts, is_inline=self.history.mirrors[step.slot % 2] == "inline")

    def _catalog(self, slot: int) -> Catalog:
        return self.catalogs[slot % 2]

    def _begin(self, slot: int) -> None:
        if slot not in self.open:
            tx, unit = self._catalog(slot).begin(), Unit(self._number, self._number)
            self.open[slot] = Open(tx, unit, self.state, self.state, self._deletions, self._changes)

    def _run_in(self, opened: Open, step: Step) -> Seen:
        """A statement of an open transaction: it answers what the model does on the transaction's own view."""
        self._number += 1
        learned = self._learn(opened.tx, step)
        if learned is None:
            return ("skipped",)
        call = learned
        seen = performing.observe(lambda: performing.in_transaction(opened.tx, learned, self._folder))
        if isinstance(step, Undrop):
            # What was dropped is looked up when it is asked for, not when the transaction began.
            opened.view = replace(opened.view, dropped=self._dropped_for(opened))
            if seen == ("ok", None):
                call = replace(call, key=self.checks.key_of(performing.uuid_of(opened.tx, step.target)))
        context = Context(opened.unit.number, self.history.keeps_dropped)
        view, expected = answer(call, opened.view, context)
        files_went = self._may_lack_files(step, since=opened.deletions)
        assert performing.fits(step, expected, seen, files_went=files_went), (
            f"{step}: answered {seen}, and should have {expected}"
        )
        if not is_refused(seen):
            opened.view = view
        opened.unit.calls.append((call, seen))
        return seen

    def _may_lack_files(self, step: Step, *, since: int) -> bool:
        """Whether files that it needs may be gone: of what it sees, or of an older version that it restores."""
        return self._deletions > (0 if isinstance(step, Restore) else since)

    def _dropped_for(self, opened: Open) -> tuple[Dropped, ...]:
        back = {call.key for call, seen in opened.unit.calls if isinstance(call.step, Undrop) and seen == ("ok", None)}
        return tuple(one for one in self.state.dropped if one.table.key not in back)

    def _learn(self, tx: CatalogTransaction, step: Step) -> Call | None:
        """The call of a step; of a restore with the version it means, and that one's rows. None if there is none."""
        if not isinstance(step, Restore):
            return Call(step, self._number)
        version = performing.version_to_restore(tx, step)
        if version is None:
            return None
        uuid = performing.uuid_of(tx, step.name)
        rows = self.checks.rows_at(uuid, version, lambda: performing.rows_of_version(tx, step.name, version))
        return Call(step, self._number, self.checks.key_of(uuid), rows, version)

    def _end(self, step: Step, opened: Open) -> None:
        if isinstance(step, Rollback):
            opened.tx.rollback()
            return
        self._number += 1
        opened.unit.ended = self._number
        try:
            opened.tx.commit()
        except LocationOwnedError:
            return  # of two who create a table of one name at one location, the later has the place
        except (CommitFailedError, TableExistsError, TableNotFoundError):
            if self._changes == opened.changes:
                raise  # nobody else changed anything
            return
        self._note(opened.unit, opened.started)
        if opened.tx.result:
            self.checks.note_instant(opened.tx.txn_id, self.state)

    # -- operations on their own

    def _run_alone(self, step: Step) -> None:
        if isinstance(step, Swap):
            self._swap_alone(step)
            return
        if isinstance(step, AppendElsewhere) and not self._may_append(step.place):
            return
        self._number += 1
        unit = Unit(self._number, self._number, self._number)
        catalog = self._catalog(step.slot)
        with catalog.begin() as tx:
            learned = self._learn(tx, step)
        if learned is None:
            return
        call = learned
        seen = performing.observe(lambda: self._perform_alone(catalog, learned))
        if isinstance(step, Undrop) and seen == ("ok", None):
            uuid = self.checks.look().live[step.target].uuid
            call = replace(call, key=self.checks.key_of(uuid))
        _, expected = answer(call, self.state, Context(unit.number, self.history.keeps_dropped))
        assert performing.fits(step, expected, seen, files_went=self._may_lack_files(step, since=self._deletions)), (
            f"{step} on its own: answered {seen}, and should have {expected}"
        )
        unit.calls.append((call, seen))
        self._note(unit, self.state)

    def _perform_alone(self, catalog: Catalog, call: Call) -> object:
        match call.step:
            case Reconcile():
                with Reconciler(catalog.store, config=catalog.config, options_of=catalog.storage_options_of) as upkeep:
                    upkeep.once()
                return None
            case AppendElsewhere(place=place):
                deltalake.write_deltalake(self._folder(place), numbers(*call.rows), mode="append")
                return None
            case _:
                return performing.alone(catalog, call, self._folder)

    def _swap_alone(self, step: Swap) -> None:
        self._number += 1
        tx = self._catalog(step.slot).begin()
        opened = Open(tx, Unit(self._number, self._number), self.state, self.state, self._deletions, self._changes)
        went_well = all(self._run_in(opened, one) == ("ok", None) for one in renames_of(step))
        self._end(Commit(step.slot) if went_well else Rollback(step.slot), opened)

    def _folder(self, place: str) -> Path:
        return self.root / "elsewhere" / place

    def _may_append(self, place: str) -> bool:
        """Another writer keeps away from a folder that nobody has fenced yet, but somebody has claimed."""
        owner = self.facts.at(self._folder(place))
        if owner is None:
            return True
        if owner.location_state != "live":
            return False
        return owner.mode != "managed" or any((owner.folder / "_delta_log").glob("*.json"))

    # -- the order of what was committed

    def _note(self, unit: Unit, started: State) -> None:
        """Find the place of a unit among those before it: at the end, at its beginning, or in another order of all."""
        self.units.append(unit)
        steps = [call.step for call, seen in unit.calls if seen[0] == "ok"]
        self._changes += any(performing.changes_something(step) for step in steps)
        self._deletions += any(performing.deletes_files(step, self.history) for step in steps)
        facts = self._seen = self.checks.look()
        after = replay(self.state, unit, keeps_dropped=self.history.keeps_dropped)
        if isinstance(after, State) and self.checks.is_state(after, facts):
            self.state = after
        elif replay(started, unit, keeps_dropped=self.history.keeps_dropped) != started:
            # Else it has only read, and is checked by nobody: it comes where it began.
            self._search(after, facts)

    def _search(self, last: State | Mismatch, facts: Facts) -> None:
        found = find_order(
            State(),
            self.units,
            lambda state: self.checks.is_state(state, facts),
            keeps_dropped=self.history.keeps_dropped,
        )
        shown = "\n".join(map(repr, self.units))
        assert found is not None, f"no serial order explains this; the order of commits ends with {last}:\n{shown}"
        self.state = found[1]


def run_history(history: History, target: str, root: Path) -> None:
    """Run a history; an error shows it as Python that can be run again."""
    try:
        with Runner(history, target, root) as runner:
            runner.run()
    except BaseException as error:
        error.add_note(f"run_history({history!r}, target, tmp_path)")
        raise
