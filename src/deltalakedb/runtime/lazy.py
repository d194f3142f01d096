"""What is made on first use: modules of public names, so that `import deltalakedb` is fast, and cached properties."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801  as in the standard library
        """A property that is made once. Two threads may make it at the same time; both get the first value.

        In Python 3.11 all instances share a lock, which is held while the value is made: if the process forks
        meanwhile, it stays locked in the child for ever. From 3.12 on there is no lock, and two threads may get two
        values.
        """

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            values = instance.__dict__
            if self.attrname not in values:
                return values.setdefault(self.attrname, self.func(instance))
            return values[self.attrname]


__all__ = ["cached_property", "lazy_names"]


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module's `__getattr__` (PEP 562), which imports a name's module when the name is first used."""

    def find(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home, package), name)
        setattr(sys.modules[package], name, value)
        return value

    return find
