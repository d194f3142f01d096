"""Finds the files, functions and constants that a page of docs/ names, and says what a module defines."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "deltalakedb"
_FILE = r"[\w./-]+\.(?:py|sql|java|toml|md)"


def read_page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def named_definitions(page: str) -> list[tuple[str, str]]:
    """The pairs of `path.py: name` in a page."""
    return sorted(set(re.findall(r"`([\w/]+\.py): (\w+(?:\.\w+)?)`", page)))


def named_files(page: str) -> list[str]:
    return sorted(set(re.findall(rf"`({_FILE})(?:`|: )", page)))


def named_folders(page: str) -> list[str]:
    return sorted(set(re.findall(r"`([\w./-]+/)`", page)))


def find_path(path: str) -> Path | None:
    """A path of the repository, or below the package; None if there is no such file or folder."""
    return next((found for found in (ROOT / path, PACKAGE / path) if found.exists()), None)


def definitions_in(path: Path) -> set[str]:
    """The functions, classes and constants of a module, and methods as `Class.method`."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{member.name}" for member in node.body if isinstance(member, ast.FunctionDef)}
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names
