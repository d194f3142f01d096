"""The register of parsers: a name, what runs one case, and how such a case may end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

Run = Callable[[Random], object]


@dataclass(frozen=True, slots=True)
class Parser:
    """One parser; `run` makes damaged input of a seed and parses it."""

    run: Run
    says: tuple[str, ...]
    """What every error message has in it, such as the table and the file."""
    also: tuple[type[Exception], ...]
    """Errors of other kinds that it may raise, as `deltalake` does."""
    cases: int
    """How many cases run in `make test`; a hundred times as many in `make soak`."""


PARSERS: dict[str, Parser] = {}


def parser(
    name: str, *, says: tuple[str, ...] = (), also: tuple[type[Exception], ...] = (), cases: int = 50
) -> Callable[[Run], Run]:
    """Register a function as the cases of a parser."""

    def register(run: Run) -> Run:
        PARSERS[name] = Parser(run, says, also, cases)
        return run

    return register
