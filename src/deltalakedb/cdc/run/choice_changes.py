"""`dl cdc apply`: changes which tables, columns, masks or names a capture has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from deltalakedb.cdc.apply.batches import WORTH_ANOTHER_RUN, commit_until_won
from deltalakedb.cdc.captured_table import NOT_ASKED_FOR, CapturedTable, SourceColumn, TableOptions
from deltalakedb.cdc.control import Capture, change_choice, load_capture, note_progress, save_tables
from deltalakedb.cdc.run.opening import check_same
from deltalakedb.cdc.run.presence import RunnerPresence
from deltalakedb.cdc.source.postgres import connect, identify
from deltalakedb.cdc.source.publication import Publication, look_at_publication
from deltalakedb.exceptions import (
    CaptureRunningError,
    CaptureSetupError,
    ConcurrentTransactionError,
    TableNotFoundError,
)
from deltalakedb.log.schema.column_mapping import mapping_mode
from deltalakedb.store.names import parse_table_name

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.cdc.settings import CaptureSettings
    from deltalakedb.cdc.source.postgres import Connection
    from deltalakedb.transactions.transaction import CatalogTransaction

Action = Literal["capture", "copy", "rename", "leave", "refuse", "stay"]
"""A table is captured for the first time, copied again, renamed in the lake, or no longer captured; it cannot be
captured; it is stopped, and stays so."""

_SWITCHES: Final = frozenset({"deletion_vectors", "change_data_feed", "column_mapping"})
"""Options that an existing table keeps unless a rule sets them."""


@dataclass(frozen=True, slots=True)
class Step:
    """What will happen to one source table."""

    source: str
    action: Action
    current: str
    """The new name of its table of current rows."""
    changes: str
    why: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What a user should know, such as where values that are masked from now on can still be read."""
    renames: tuple[tuple[str, str], ...] = ()
    tables: tuple[str, ...] = ()
    """Those of its two tables that its layers keep up to date."""

    @classmethod
    def of(cls, table: CapturedTable, action: Action, why: Iterable[str], **more: Any) -> Step:
        return cls(
            table.source, action, table.current, table.changes, tuple(why), tables=tuple(table.lake_tables), **more
        )

    def to_value(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "action": self.action,
            "current": self.current,
            "changes": self.changes,
            "why": list(self.why),
            "notes": list(self.notes),
            "renames": [list(pair) for pair in self.renames],
            "tables": list(self.tables),
        }


@dataclass(frozen=True, slots=True)
class ChoicePlan:
    """What the settings change in a capture."""

    slot: str
    steps: tuple[Step, ...]
    unmatched: tuple[str, ...]
    """Settings that match no table or column."""
    is_new: bool
    """Whether the capture was never started: then `dl cdc start` does everything."""
    is_changed: bool
    problems: tuple[str, ...] = ()
    """Why it cannot be applied."""
    needs_stop: tuple[str, ...] = ()
    """Why it cannot be applied while the capture runs."""

    def check(self, *, is_running: bool) -> None:
        """CaptureSetupError or CaptureRunningError if it cannot be applied."""
        if self.problems:
            raise CaptureSetupError(f"the settings cannot be applied: {'; '.join(self.problems)}")
        if is_running and self.needs_stop:
            raise CaptureRunningError(
                f"the capture {self.slot} runs, and {self.needs_stop[0]}: stop it (dl cdc stop --slot {self.slot}), "
                "apply, and start it again"
            )


def plan_choice(catalog: Catalog, settings: CaptureSettings) -> ChoicePlan:
    """What `apply_choice` would do; nothing is changed."""
    settings.check_key()
    with connect(settings.source) as conn:
        return _Planner(conn, settings, load_capture(catalog, settings), catalog).plan()


def apply_choice(catalog: Catalog, settings: CaptureSettings) -> tuple[ChoicePlan, bool]:
    """Apply the settings to the capture; returns what was done, and whether the capture is running.

    Tables that need a copy are marked, tables are renamed, tables that are no longer chosen are stopped, all in one
    transaction. The runner makes the copies within seconds, or the next start does.
    """
    settings.check_key()
    try:
        with RunnerPresence(settings.source, settings.slot):
            return _apply(catalog, settings, is_running=False), False
    except CaptureRunningError:
        return _apply(catalog, settings, is_running=True), True


def _apply(catalog: Catalog, settings: CaptureSettings, *, is_running: bool) -> ChoicePlan:
    with connect(settings.source) as conn:

        def commit() -> ChoicePlan:
            with catalog.begin(message=f"capture {settings.slot}: what is captured is changed") as tx:
                capture = load_capture(tx, settings)
                if capture is not None:
                    check_same(capture, settings, identify(conn))
                plan = _Planner(conn, settings, capture, tx).plan()
                plan.check(is_running=is_running)
                if capture is not None and plan.is_changed:
                    _change(tx, capture, plan, settings)
                return plan

        description = f"what {settings.slot} captures"
        # A batch of the runner may commit first.
        return commit_until_won(commit, description, (*WORTH_ANOTHER_RUN, ConcurrentTransactionError))


def _change(tx: CatalogTransaction, capture: Capture, plan: ChoicePlan, settings: CaptureSettings) -> None:
    changed = []
    for step in plan.steps:
        captured = capture.tables.get(step.source)
        if captured is None:
            continue  # the runner, or the next start, adds it
        renamed = replace(captured, current=step.current, changes=step.changes)
        match step.action:
            case "copy":
                changed.append(renamed.to_copy_again())
            case "rename":
                changed.append(renamed)
            case "leave":
                since = captured.stopped_lsn if captured.stage == "stopped" else capture.lsn
                taken_out = replace(captured, stage="stopped", reason=NOT_ASKED_FOR, stopped_lsn=since, copy_id=None)
                changed.append(taken_out)
        for old, new in step.renames:
            tx.rename_table(old, new)
    saved = save_tables(tx, capture, changed) if changed else capture
    note_progress(tx, change_choice(tx, saved, settings.choice_value()), capture.lsn)


@dataclass(frozen=True, slots=True)
class _Planner:
    """Compares a capture with the settings."""

    conn: Connection
    settings: CaptureSettings
    capture: Capture | None
    lake: Catalog | CatalogTransaction

    def plan(self) -> ChoicePlan:
        published = look_at_publication(self.conn, self.settings, self.capture)
        steps = sorted(self._steps(published), key=lambda step: step.source)
        capture = self.capture
        is_changed = capture is None or capture.choice != self.settings.choice_value()
        return ChoicePlan(
            self.settings.slot,
            tuple(steps),
            published.unmatched,
            capture is None,
            is_changed or any(step.action in ("copy", "rename", "leave") for step in steps),
            tuple(self._problems(published, steps)),
            tuple(self._needs_stop(steps)),
        )

    def _steps(self, published: Publication) -> Iterator[Step]:
        tables = {} if self.capture is None else self.capture.tables
        for table in published.tables:
            captured = tables.get(table.source)
            step = _new(table) if captured is None else self._compare(captured, table)
            if step is not None:
                yield step
        for table in published.refused:
            if table.source not in tables:
                yield Step.of(table, "refuse", [table.reason or ""])
        for source, captured in tables.items():
            if source in published.sources or captured.is_taken_out:
                continue
            # A stopped table may come back, unless the settings leave it out.
            if captured.stage != "stopped" or not self.settings.wants(source):
                why = published.why_not(source, self.settings)
                notes = (f"{' and '.join(captured.lake_tables)} stay as they are",)
                yield Step.of(captured, "leave", [why], notes=notes)

    def _compare(self, captured: CapturedTable, table: CapturedTable) -> Step | None:
        was_left = captured.is_taken_out
        if captured.stage == "stopped" and not was_left:
            return Step.of(captured, "stay", [captured.reason or ""])
        why = [*(["it was left out until now"] if was_left else ()), *self._differences(captured, table)]
        renames = tuple(self._renames(captured, table))
        if not why and (captured.current, captured.changes) == (table.current, table.changes):
            return None
        reasons = why or ["it is called otherwise in the lake"]
        # A copy under way belongs to the table's old name.
        action: Action = "copy" if why or captured.stage == "copying" else "rename"
        return Step.of(table, action, reasons, notes=tuple(_notes(captured, table)), renames=renames)

    def _differences(self, captured: CapturedTable, table: CapturedTable) -> Iterator[str]:
        before = {column.number: column for column in captured.columns}
        hidden = {column.number for column in captured.left_out}
        for column in table.columns:
            old = before.get(column.number)
            if old is not None:
                yield from _column_differences(old, column)
            elif column.number in hidden:
                yield f"the column {column.name} is captured from now on"
        for column in table.left_out:
            if column.number in before:
                yield f"the column {column.name} is left out from now on"
        yield from self._option_differences(captured, table)

    def _option_differences(self, captured: CapturedTable, table: CapturedTable) -> Iterator[str]:
        """Options that the rules change. The settings of the whole capture apply only to new tables."""
        if captured.options is None or table.options is None or self.capture is None:
            return
        choice = self.settings.choose(table.source)
        before = self.settings.with_rules_of(self.capture.choice).choose(table.source)
        for option in fields(TableOptions):
            old, new = getattr(captured.options, option.name), getattr(table.options, option.name)
            is_said = choice.says(option.name) or (option.name not in _SWITCHES and before.says(option.name))
            if old != new and is_said:
                yield f"{option.name} was {_option_text(old)} and is {_option_text(new)}"

    def _renames(self, captured: CapturedTable, table: CapturedTable) -> Iterator[tuple[str, str]]:
        existing = self._names()
        for old, new in ((captured.current, table.current), (captured.changes, table.changes)):
            if old != new and parse_table_name(old).key in existing:
                yield old, new

    def _names(self) -> set[tuple[str, str]]:
        return {parse_table_name(name).key for name in self.lake.tables()}

    def _problems(self, published: Publication, steps: Iterable[Step]) -> Iterator[str]:
        yield from published.slips
        for source in published.sources:
            if self._was_mapped(source) and self.settings.choose(source).unmaps_columns:
                yield f"{source}: column_mapping cannot be switched off any more"
        steps = tuple(steps)
        existing = self._names() - {parse_table_name(old).key for step in steps for old, _ in step.renames}
        for step in steps:
            for old, new in step.renames:
                if parse_table_name(new).key in existing:
                    yield f"{step.source}: {old} would become {new}, and there is a table of that name"

    def _was_mapped(self, source: str) -> bool:
        captured = None if self.capture is None else self.capture.tables.get(source)
        if captured is None:
            return False
        try:
            configuration = self.lake.table(captured.current).metadata().configuration
        except TableNotFoundError:
            return False
        return mapping_mode(configuration) != "none"

    def _needs_stop(self, steps: Iterable[Step]) -> Iterator[str]:
        if self.capture is None:
            return
        if any(step.renames for step in steps):
            yield "tables that it writes to get other names"
        if self.settings.key_id is not None and self.capture.choice.get("keyId") != self.settings.key_id:
            yield "it does not have the key of the masks"


def _new(table: CapturedTable) -> Step:
    hidden = [f"{column.name} is masked ({column.mask})" for column in table.columns if column.mask is not None]
    hidden += [f"{column.name} is left out" for column in table.left_out]
    return Step.of(table, "capture", hidden)


def _column_differences(old: SourceColumn, column: SourceColumn) -> Iterator[str]:
    if old.mask != column.mask:
        same = old.mask is not None and column.mask is not None and str(old.mask) == str(column.mask)
        difference = "the key of its mask is another one" if same else f"its mask was {old.mask} and is {column.mask}"
        yield f"the column {column.name}: {difference.replace('None', 'none')}"
    elif (old.type_oid, old.type_modifier) == (column.type_oid, column.type_modifier) and (old.type, old.shape) != (
        column.type,
        column.shape,
    ):
        texts = [
            f"JSON of {version.shape}" if version.shape is not None else str(version.type) for version in (old, column)
        ]
        yield f"the column {column.name} was {texts[0]} and is {texts[1]}"


def _notes(captured: CapturedTable, table: CapturedTable) -> Iterator[str]:
    """What stays in the lake after the change."""
    before = {column.number: column for column in captured.columns}
    hidden = [column.name for column in table.left_out if column.number in before]
    hidden += [
        column.name
        for column in table.columns
        if column.mask is not None and column.number in before and before[column.number].mask != column.mask
    ]
    if hidden:
        yield (
            f"what was captured of {', '.join(hidden)} so far stays in older versions of {table.lake_tables[0]} until "
            f"dl vacuum, and in {table.changes}_until_<lsn>, which has the changes so far: drop it when nobody needs it"
        )
    for is_kept, was_kept, name in (
        (table.keeps_current, captured.keeps_current, table.current),
        (table.keeps_changes, captured.keeps_changes, table.changes),
    ):
        if was_kept and not is_kept:
            yield f"{name} stays as it is, and is not kept up to date any more: drop it when nobody needs it"


def _option_text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return (", ".join(value) or "none") if isinstance(value, tuple) else str(value)


def check_choice(catalog: Catalog, conn: Connection, settings: CaptureSettings) -> None:
    """Refuse a start whose settings need `dl cdc apply` first, or name missing tables or columns."""
    capture = load_capture(catalog, settings)
    if capture is None or not capture.begun:
        look_at_publication(conn, settings, capture).check_choice()
    else:
        settings.check_same_choice(capture.choice)
