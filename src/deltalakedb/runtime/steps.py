"""Names the steps of a commit and of its mirroring at which a process may die; tests stop it there."""

from collections.abc import Callable

_observers: list[Callable[[str], None]] = []


def observe(observer: Callable[[str], None]) -> None:
    """Call `observer` with the name of every step that is reached, until the process ends."""
    _observers.append(observer)


def reached(step: str) -> None:
    """Report a step: everything before it has happened, nothing after it."""
    for observer in _observers:
        observer(step)
