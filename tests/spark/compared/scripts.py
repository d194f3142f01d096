"""The statements that are compared: read from the text files beside this module, one statement a line.

A file holds scripts. A script begins with `== its name`; its statements run in order, in a database of its own. A
statement is SQL, or Python when it begins with `>>> `; lines that are indented continue it. `(differs: a line)` before
a statement says that it behaves differently through the bridge, as that line of docs/spark.md explains.

    $db    the script's database, which is the current one
    $dir   an empty folder: a table there is plain Delta on both sides
    $lake  a folder for tables by path: through the bridge a `dldb:` path, which the catalog manages
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
_DIFFERS = re.compile(r"\(differs: (?P<line>[^)]+)\) (?P<text>.+)", re.DOTALL)
_PYTHON = ">>> "


@dataclass(frozen=True, slots=True)
class Statement:
    """`differs` is the title of the documented difference that it shows, None when both sides behave alike."""

    text: str
    differs: str | None = None

    @property
    def is_python(self) -> bool:
        return self.text.startswith(_PYTHON)

    @property
    def code(self) -> str:
        return self.text.removeprefix(_PYTHON)


@dataclass(frozen=True, slots=True)
class Script:
    name: str
    statements: tuple[Statement, ...]

    @property
    def database(self) -> str:
        return "c_" + re.sub(r"\W+", "_", self.name.lower())


def read_scripts() -> list[Script]:
    """Every script of every file."""
    return [script for path in sorted(FOLDER.glob("*.txt")) for script in _read(path.stem, path.read_text())]


def _read(file: str, text: str) -> Iterator[Script]:
    for part in re.split(r"^== ", text, flags=re.MULTILINE)[1:]:
        name, *lines = part.rstrip().splitlines()
        whole: list[str] = []
        for line in lines:
            if line.startswith((" ", "\t")):
                whole[-1] += "\n" + line
            elif line:
                whole.append(line)
        yield Script(f"{file}: {name}", tuple(map(_statement, whole)))


def _statement(line: str) -> Statement:
    match = _DIFFERS.fullmatch(line)
    return Statement(line) if match is None else Statement(match["text"], match["line"])
