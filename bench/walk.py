"""Counts the files and functions of the package that one append and one plan run through: `python -m bench.walk`.

With `--list` it prints them too, in the order in which they are first called.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa

import deltalakedb as dl

PACKAGE = Path(dl.__file__).parent


def trace(action: Callable[[], object]) -> list[tuple[str, str]]:
    """The (file, function) pairs of the package that the action calls, in all threads that it starts."""
    calls: dict[tuple[str, str], None] = {}

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(f"{PACKAGE}/") and not code.co_name.startswith("<"):
            calls[code.co_filename.removeprefix(f"{PACKAGE}/"), code.co_qualname] = None

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(calls)


def walks(folder: Path) -> dict[str, list[tuple[str, str]]]:
    """The second append to a table in a SQLite catalog, and a plan of it."""
    address = f"deltasql://sqlite/{folder / 'catalog.db'}?table=sales.orders&warehouse={folder / 'lake'}"
    rows = pa.table({"id": list(range(100)), "amount": [1.5] * 100})
    dl.write_deltalake(address, rows, mode="append")
    appended = trace(lambda: dl.write_deltalake(address, rows, mode="append"))
    table = dl.DeltaTable(address)
    table.plan("id > 50")
    return {"append": appended, "plan": trace(lambda: table.plan("id > 50").num_files)}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, calls in walks(Path(folder)).items():
            files = {file for file, _ in calls}
            print(f"{name}: {len(files)} files, {len(calls)} functions")
            if "--list" in sys.argv:
                print("".join(f"  {file}: {function}\n" for file, function in calls), end="")


if __name__ == "__main__":
    main()
