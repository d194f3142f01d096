"""Serial orders: whether committed transactions, run one after another on the model, answer what they answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.conformance.catalog_model import NOT_DROPPED, Context, Seen, State, is_refused
from tests.conformance.catalog_steps import Call, answer


@dataclass(slots=True)
class Unit:
    """A transaction, or an operation on its own: what it ran and was answered, and the moments of its life."""

    number: int
    begun: int
    ended: int = -1
    calls: list[tuple[Call, Seen]] = field(default_factory=list)

    def __repr__(self) -> str:
        said = "".join(f"\n    {call.step!r} -> {seen!r}" for call, seen in self.calls)
        return f"unit {self.number} ({self.begun} to {self.ended}):{said}"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first statement of a unit that answered something else than the model at that point of an order."""

    call: Call
    expected: Seen
    seen: Seen


def replay(state: State, unit: Unit, *, keeps_dropped: bool) -> State | Mismatch:
    """The state after a unit, or where its answers differ from the model's."""
    context = Context(unit.number, keeps_dropped)
    for call, seen in unit.calls:
        if is_refused(seen) or seen == NOT_DROPPED:
            continue  # what can be undropped is looked up now, not in the transaction's cut; finding nothing is no read
        after, expected = answer(call, state, context)
        if expected != seen:
            return Mismatch(call, expected, seen)
        state = after
    return state


def find_order(
    start: State, units: Sequence[Unit], is_final: Callable[[State], bool], *, keeps_dropped: bool
) -> tuple[list[Unit], State] | None:
    """An order of the units that explains all answers and the final state, and that state; None when there is none.

    A unit that ended before another began comes first. The order in which they are given is tried first.
    """

    tried: set[tuple[int, str]] = set()

    def search(state: State, done: list[Unit], left: list[Unit]) -> tuple[list[Unit], State] | None:
        if not left:
            return (done, state) if is_final(state) else None
        at = sum(1 << unit.number for unit in left), repr(state)
        if at in tried:  # other orders of the same units led here
            return None
        tried.add(at)
        for unit in left:
            if any(other.ended < unit.begun for other in left if other is not unit):
                continue
            after = replay(state, unit, keeps_dropped=keeps_dropped)
            if isinstance(after, State):
                rest = [other for other in left if other is not unit]
                if (found := search(after, [*done, unit], rest)) is not None:
                    return found
        return None

    return search(start, [], list(units))
