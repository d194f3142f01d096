"""Draws histories: a dry run on the model tells which names are there, so that most steps have something to do."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.conformance.catalog_model import Context, State
from tests.conformance.catalog_steps import (
    FREE,
    NAMES,
    PLACES,
    PRELUDE,
    SLOTS,
    AppendElsewhere,
    Attach,
    Begin,
    Call,
    Commit,
    Create,
    Delete,
    Detach,
    Drop,
    Exists,
    Follow,
    History,
    MirrorMode,
    Names,
    Promote,
    Read,
    Reconcile,
    Rename,
    Restore,
    Rollback,
    Step,
    Swap,
    Undrop,
    Vacuum,
    Write,
    answer,
    renames_of,
)

MIRRORS: tuple[MirrorMode, ...] = ("inline", "off", "background")
ROUNDS = 2
"""How often transactions begin beside each other in one history."""


def draw_history(seed: int) -> History:
    """The history of a number: a few operations, then rounds of two or three transactions with others between them."""
    choose = random.Random(seed)
    keeps_dropped = choose.random() < 0.7
    drawing = _Drawing(choose, keeps_dropped)
    for _ in range(choose.randrange(3)):
        drawing.take(drawing.operation())
    for _ in range(ROUNDS):
        if choose.random() < 0.4:
            drawing.draw_skew()
        else:
            drawing.draw_round()
    return History(tuple(drawing.steps), (choose.choice(MIRRORS), choose.choice(MIRRORS)), keeps_dropped)


@dataclass(slots=True)
class _Drawing:
    choose: random.Random
    keeps_dropped: bool
    steps: list[Step] = field(default_factory=list)
    state: State = field(default_factory=State)
    views: dict[int, State] = field(default_factory=dict)
    """What the transactions of slots see."""

    def __post_init__(self) -> None:
        for number, step in enumerate(PRELUDE):
            self.state, _ = answer(Call(step, -number - 1), self.state, Context(-number - 1, self.keeps_dropped))

    def draw_round(self) -> None:
        slots = range(self.choose.randint(2, SLOTS))
        for slot in slots:
            self.take(Begin(slot))
        turns = [slot for slot in slots for _ in range(self.choose.randint(1, 3))]
        turns += [FREE + self.choose.randrange(2) for _ in range(self.choose.randint(0, 3))]
        self.choose.shuffle(turns)
        ends = {slot: len(turns) - turns[::-1].index(slot) for slot in slots}
        for number, turn in enumerate(turns, 1):
            self.take(self.operation() if turn >= FREE else self.statement(turn))
            for slot in slots:
                if ends[slot] == number:
                    self.take(Commit(slot) if self.choose.random() < 0.85 else Rollback(slot))

    def draw_skew(self) -> None:
        """Two transactions of which each looks at what the other changes: at most one of them can commit."""
        names = self.choose.sample(NAMES, 2)
        for slot in (0, 1):
            self.take(Begin(slot))
        turns = [0, 0, 1, 1, *([FREE] if self.choose.random() < 0.3 else [])]
        self.choose.shuffle(turns)
        for number, turn in enumerate(turns):
            if turn == FREE:
                self.take(self.operation())
            elif turn in turns[:number]:
                self.take(self._act_on(turn, names[1 - turn]))
            else:
                self.take(self._look_at(turn, names[turn]))
        for slot in self.choose.sample((0, 1), 2):
            self.take(Commit(slot))

    def take(self, step: Step) -> None:
        """One more step, and what it probably does: most transactions that commit do so."""
        self.steps.append(step)
        slot = step.slot
        if isinstance(step, Begin):
            self.views[slot] = self.state
        elif isinstance(step, Commit):
            self.state = self.views.pop(slot)
        elif isinstance(step, Rollback):
            del self.views[slot]
        else:
            for one in renames_of(step) if isinstance(step, Swap) else (step,):
                context = Context(slot, self.keeps_dropped)
                after, _ = answer(Call(one, len(self.steps)), self.views.get(slot, self.state), context)
                if slot in self.views:
                    self.views[slot] = after
                else:
                    self.state = after

    # -- names

    def _one_of(self, likely: Sequence[str]) -> str:
        return self.choose.choice(likely if likely and self.choose.random() < 0.9 else NAMES)

    def _live(self, state: State) -> str:
        return self._one_of(sorted(name for name in state.names if name in NAMES))

    def _unused(self, state: State) -> str:
        return self._one_of([name for name in NAMES if name not in state.names])

    def _of_mode(self, *modes: str) -> str:
        return self._one_of([name for name, table in self.state.names.items() if table.mode in modes])

    # -- steps

    def _look_at(self, slot: int, name: str) -> Step:
        steps: list[Step] = [Read(slot, name), Exists(slot, name), Names(slot)]
        if name in self.views[slot].names:
            steps += [Create(slot, name, ignore=True), Rename(slot, self._unused(self.views[slot]), name)]
        else:
            steps += [Drop(slot, name), Delete(slot, name)]
        return self.choose.choice(steps)

    def _act_on(self, slot: int, name: str) -> Step:
        view = self.views[slot]
        if name in view.names:
            unused = self._unused(view)
            return self.choose.choice(
                (
                    Write(slot, name),
                    Write(slot, name, overwrite=True),
                    Delete(slot, name),
                    Drop(slot, name),
                    Drop(slot, name, purge=True),
                    Rename(slot, name, unused),
                )
            )
        dropped = self._one_of([one.name for one in self.state.dropped])
        return self.choose.choice(
            (Create(slot, name), Write(slot, name), Undrop(slot, dropped, name), Rename(slot, self._live(view), name))
        )

    def statement(self, slot: int) -> Step:
        """A statement of a slot's transaction, or on its own if it has none."""
        choose, state = self.choose, self.views.get(slot, self.state)
        remainder = choose.choice((None, None, 0, 1, 2))
        dropped = [one.name for one in self.state.dropped]
        makers: list[tuple[int, Callable[[], Step]]] = [
            (2, lambda: Create(slot, self._unused(state), None, choose.random() < 0.3)),
            (1, lambda: Create(slot, self._unused(state), choose.choice(PLACES))),
            (1, lambda: Create(slot, self._live(state), None, ignore=True)),
            (3, lambda: Drop(slot, self._live(state))),
            (2, lambda: Drop(slot, self._live(state), purge=True)),
            (3, lambda: Undrop(slot, self._one_of(dropped), self._unused(state))),
            (3, lambda: Rename(slot, self._live(state), self._unused(state))),
            (2, lambda: Swap(slot, self._live(state), self._live(state))),
            (4, lambda: Write(slot, self._live(state), choose.random() < 0.3)),
            (1, lambda: Write(slot, self._unused(state))),
            (3, lambda: Delete(slot, self._live(state), remainder)),
            (4, lambda: Read(slot, self._live(state), remainder)),
            (2, lambda: Exists(slot, choose.choice(NAMES))),
            (2, lambda: Names(slot)),
            (2, lambda: Restore(slot, self._live(state), choose.randint(1, 3))),
        ]
        return self._make(makers)

    def operation(self) -> Step:
        """A step on its own: a statement of a slot that is free, or one on a table's life or files."""
        choose = self.choose
        slot = FREE + choose.randrange(2)
        makers: list[tuple[int, Callable[[], Step]]] = [
            (8, lambda: self.statement(slot)),
            (2, lambda: Vacuum(slot, self._live(self.state))),
            (2, lambda: Attach(slot, choose.choice(PLACES), self._unused(self.state))),
            (1, lambda: Follow(slot, self._of_mode("follower"))),
            (2, lambda: Promote(slot, self._of_mode("follower", "detached"))),
            (2, lambda: Detach(slot, self._of_mode("managed"))),
            (2, lambda: AppendElsewhere(slot, choose.choice(PLACES))),
            (1, lambda: Reconcile(slot)),
        ]
        return self._make(makers)

    def _make(self, makers: Sequence[tuple[int, Callable[[], Step]]]) -> Step:
        ((_, make),) = self.choose.choices(makers, [weight for weight, _ in makers])
        return make()
