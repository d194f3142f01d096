"""Runs a line at a place and gives the facts of its outcome, by class."""

from __future__ import annotations

import ast
import re
import warnings
from typing import Any

from tests.differential import facts
from tests.differential.lines import Line
from tests.differential.places import Mode, Place, Starts

Facts = dict[str, Any]
MODES: tuple[Mode, ...] = ("path", "sql")
WARNINGS = {"DeprecationWarning", "FutureWarning", "UserWarning", "RuntimeWarning", "ExperimentalWarning"}
UNORDERED = {"DeltaTable.file_uris", "DeltaTable.partitions"}
"""Members whose lists have no promised order."""
READING = {f"DeltaTable.{name}" for name in ("to_pyarrow_table", "to_pandas", "to_pyarrow_dataset", "scan")}
ONE_FILE_EACH = {"plain", "typed", "feed", "ruled", "many", "generated", "restricted", "empty"}
WORDS = re.compile(r"[A-Za-z_][\w]{2,}|-?\d+")
SQL_WORDS = {"and", "not", "null", "true", "false", "cast", "like", "between", "case", "when", "then", "else", "end"}


def run(line: Line, mode: Mode, starts: Starts) -> Facts:
    place = starts.place(mode, line.start)
    try:
        with place.warehouse():
            return _facts(line, place)
    finally:
        place.close()


def _facts(line: Line, place: Place) -> Facts:
    mask = facts.Mask(place.addresses)
    before, files = place.last_version, facts.folder_facts(place.folder)
    found: Facts = {}
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            value = _execute(line, place)
            result = facts.plain(value, mask, ordered=_is_ordered(line))
            found["result"] = sorted(result, key=facts.canonical) if _is_unordered(line) else result
        except BaseException as error:  # a panic of Rust is no Exception
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            found["error"] = [kind.__name__ for kind in type(error).__mro__]
            found["message"] = mask.text(str(error))
    found["warnings"] = sorted(
        f"{one.category.__name__}: {mask.text(str(one.message))}" for one in heard if one.category.__name__ in WARNINGS
    )
    left = _left(place, before, files, mask)
    if "error" in found:
        del left["on disk"]  # what `deltalake` had begun to write, it leaves there or not
    return found | left


def _is_ordered(line: Line) -> bool:
    """Whether rows come in a promised order: a query's, or that of the log where a commit has one file."""
    of_the_log = line.member in READING and line.start in ONE_FILE_EACH and "predicate" not in line.text
    return "order by" in line.text.lower() or of_the_log


def _is_unordered(line: Line) -> bool:
    return line.member in UNORDERED or line.text.endswith(".partitions()")


def _execute(line: Line, place: Place) -> Any:
    """Run a line; its last expression is the result."""
    tree = ast.parse(line.text)
    names = place.names()
    if any(isinstance(node, ast.Name) and node.id == "t" for node in ast.walk(tree)):
        names["t"] = place.open()
    last = tree.body.pop()
    if not isinstance(last, ast.Expr):
        raise SyntaxError(f"{line.text}: no expression at its end")
    exec(compile(tree, line.area, "exec"), names)
    return eval(compile(ast.Expression(last.value), line.area, "eval"), names)


def _left(place: Place, before: int, files: dict[str, int], mask: facts.Mask) -> Facts:
    """What has changed in the folder, and what the table is if it has a new version."""
    after = facts.folder_facts(place.folder)
    found: Facts = {"on disk": {name: after.get(name, 0) - files.get(name, 0) for name in {*files, *after}}}
    found["on disk"] = {name: change for name, change in found["on disk"].items() if change}
    place.close()
    try:
        table = place.open()
    except Exception as error:
        return found | {"table": type(error).__name__}
    found["version"] = table.version()
    if table.version() == before:
        return found
    entries = [entry for entry in table.history() if entry["version"] > before]
    found["commit info"] = [facts.history_facts(entry, mask) for entry in entries]
    found["metrics"] = [facts.plain(entry.get("operationMetrics"), mask) for entry in entries]
    try:
        found["rows"] = facts.table_facts(table.to_pyarrow_table(), mask)
    except Exception as error:
        found["reading"] = [kind.__name__ for kind in type(error).__mro__]
    found |= facts.commit_facts(place.folder, before, mask)
    found["protocol"] = {"new": found["protocol"], "now": facts.plain(table.protocol(), mask)}
    return found


def _named(line: Line, message: str) -> set[str]:
    """The words and numbers of the call that a message names."""
    words: set[str] = set()
    for node in ast.walk(ast.parse(line.text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | int) and not isinstance(node.value, bool):
            words |= {word for word in WORDS.findall(str(node.value)) if word.lower() not in SQL_WORDS}
    return {word for word in words if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", message)}


def differing(line: Line, theirs: Facts, ours: Facts) -> dict[str, tuple[Any, Any]]:
    """The classes of facts that are not the same, with both values."""
    found: dict[str, tuple[Any, Any]] = {}
    for name in sorted({*theirs, *ours}):
        one, other = theirs.get(name), ours.get(name)
        if name in ("error", "reading") and one and other:
            same = one[0] in other
        elif name == "message" and one is not None and other is not None:
            same = _named(line, one) <= _named(line, other)
        else:
            same = one == _without_extra(one, other)
        if not same:
            found[name] = (one, other)
    return {"error": found["error"]} if "error" in found else found


def _without_extra(theirs: Any, ours: Any) -> Any:
    """Ours without what `deltalake` does not tell of a commit: the version that was read, more parameters."""
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        return [_without_extra(one, other) for one, other in zip(theirs, ours, strict=True)]
    if not isinstance(theirs, dict) or not isinstance(ours, dict):
        return ours
    if "operation" in theirs:
        return {
            key: _without_extra(theirs.get(key), value)
            for key, value in ours.items()
            if key in theirs or key != "readVersion"
        }
    if "zOrderBy" in ours and "zOrderBy" not in theirs:
        return {key: value for key, value in ours.items() if key != "zOrderBy"}
    return ours


def compare(line: Line, starts: Starts) -> dict[str, dict[str, tuple[Any, Any]]]:
    """What differs on paths and on SQL."""
    theirs = run(line, "deltalake", starts)
    return {mode: differing(line, theirs, run(line, mode, starts)) for mode in MODES}
