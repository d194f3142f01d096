"""Random files of settings against a model of what is captured, masked and routed: a masked value is in no file."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from deltalakedb.exceptions import CaptureSetupError
from tests.cdc.choosing import Choosing, check_hidden, choosing, masked, settings_from
from tests.cdc.conftest import Lake, Source
from tests.fixtures.sizes import sized

TABLES = ("a.users", "a.orders", "b.users", "b.tmp_x")
COLUMNS = "id int primary key, email text, phone text, note text, amount int, born date, grp text"
TABLE_PATTERNS = ("*.*", "a.*", "*.users", "b.user[s]", "*.*s", "[ab].orders", "b.*")
CONSTANTS = {"email": "***", "phone": "none", "note": "", "amount": 0, "born": "2000-01-01"}
KINDS = ("insert", "update", "delete", "move", "truncate", "add")
SEEDS = sized(4, 150)


@dataclass
class Settings:
    """A random file, and what it means: worked out here by other means than the package has."""

    include: list[str]
    exclude: list[str]
    rules: list[dict[str, Any]]
    column_mapping: bool

    @classmethod
    def draw(cls, rng: random.Random) -> "Settings":
        rules = [cls._draw_rule(rng) for _ in range(rng.randint(0, 4))]
        include = rng.choice(([], [], ["a.*"], ["*.users", "b.tmp*"]))
        return cls(include, rng.choice(([], ["*.tmp_*"], ["a.u*"])), rules, rng.random() < 0.5)

    @staticmethod
    def _draw_rule(rng: random.Random) -> dict[str, Any]:
        rule: dict[str, Any] = {"tables": rng.sample(TABLE_PATTERNS, rng.randint(1, 2))}
        if rng.random() < 0.8:
            patterns = rng.sample(("email", "phone", "note", "amount", "born", "e*", "*o*", "?mail", "id"), 2)
            rule["mask"] = {}
            for pattern in patterns:
                kinds = (
                    ["hash"] if pattern == "id" else ["hash", "null", *(["constant"] if pattern in CONSTANTS else ())]
                )
                kind = rng.choice(kinds)
                rule["mask"][pattern] = {"constant": CONSTANTS[pattern]} if kind == "constant" else kind
        choices: dict[str, tuple[Any, ...]] = {
            "exclude_columns": (["phone"], ["n*", "born"], ["*[mx]ail*"]),
            "include_columns": (["id", "e*", "a*", "grp"], ["*"]),
            "namespace": ("crm", "x_{schema}"),
            "name": ("{schema}__{table}", "all_{table}"),
            "layers": ("both", "changes", "current"),
            "partition_by": (["grp"],),
            "cluster_by": (["id", "grp"],),
            "deletion_vectors": (True, False),
            "change_data_feed": (True, False),
        }
        for key, values in choices.items():
            if rng.random() < 0.3:
                rule[key] = rng.choice(values)
        return rule

    def toml(self) -> str:
        lines = [f"include = {self.include}"] if self.include else []
        lines += [f"exclude = {self.exclude}", f"column_mapping = {str(self.column_mapping).lower()}"]
        for rule in self.rules:
            lines += ["", "[[cdc.rules]]", *(f"{key} = {_toml(value)}" for key, value in rule.items())]
        return "\n".join(lines) + "\n"

    # -- the model

    def chosen(self) -> list[str]:
        wanted = [table for table in TABLES if not self.include or _any(self.include, table)]
        return [table for table in wanted if not _any(self.exclude, table)]

    def of(self, table: str) -> list[dict[str, Any]]:
        return [rule for rule in self.rules if _any(rule["tables"], table)]

    def last(self, table: str, key: str, default: Any = None) -> Any:
        return next((rule[key] for rule in reversed(self.of(table)) if key in rule), default)

    def keeps(self, table: str, column: str) -> bool:
        excluded = [pattern for rule in self.of(table) for pattern in rule.get("exclude_columns", ())]
        return not _any(excluded, column) and _any(self.last(table, "include_columns", ["*"]), column)

    def mask(self, table: str, column: str) -> Any:
        found = [mask for rule in self.of(table) for name, mask in rule.get("mask", {}).items() if _any([name], column)]
        return found[-1] if found else None

    def hides(self, table: str, column: str) -> bool:
        return table not in self.chosen() or not self.keeps(table, column) or self.mask(table, column) is not None

    def name(self, table: str) -> str:
        schema, _, name = table.partition(".")
        where = self.last(table, "namespace", "{schema}").replace("{schema}", schema)
        return f"{where}.{self.last(table, 'name', '{table}').replace('{schema}', schema).replace('{table}', name)}"

    def lake_tables(self) -> list[str]:
        layers = {table: self.last(table, "layers", "both") for table in self.chosen()}
        names = [self.name(table) for table, one in layers.items() if one != "changes"]
        return names + [f"{self.name(table)}_changes" for table, one in layers.items() if one != "current"]

    def is_refused(self) -> bool:
        names = self.lake_tables()
        return len(set(names)) < len(names)

    def value(self, table: str, column: str, text: str | None) -> str | None:
        """What the lake has, as text."""
        mask = self.mask(table, column)
        if mask is None or text is None:
            return text
        if mask == "hash":
            return masked(text)
        return None if mask == "null" else str(mask["constant"])


def _any(patterns: list[str], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f'"{key}" = {_toml(one)}' for key, one in value.items()) + " }"
    if isinstance(value, bool | int):
        return str(value).lower()
    return "[" + ", ".join(map(_toml, value)) + "]" if isinstance(value, list) else f'"{value}"'


@dataclass
class Writer:
    """Writes rows whose every value is like no other, and remembers which column it was written to."""

    rng: random.Random
    source: Source
    count: int = 0
    added: set[str] = field(default_factory=set)
    written: dict[str, tuple[str, str]] = field(default_factory=dict)

    def create(self) -> None:
        self.source.run("create schema a", "create schema b", *(f"create table {name} ({COLUMNS})" for name in TABLES))
        self.source.run("alter table b.tmp_x drop constraint tmp_x_pkey", "alter table b.tmp_x replica identity full")
        self.source.run("create publication shop for all tables")

    def value(self, table: str, column: str) -> str:
        self.count += 1
        if column == "id":
            return str(self.count)
        if column == "grp":
            return f"'g{self.count % 3}'"
        if self.rng.random() < 0.1:
            return "null"
        text = f"{table}/{column}/{self.count}~"
        if column == "amount":
            text = str(987_000_000 + self.count)
        if column == "born":
            return f"date '2391-07-08' + {self.count}"
        self.written[text] = (table, column)
        return text if column == "amount" else f"'{text}'"

    def statements(self, number: int) -> Iterator[str]:
        for _ in range(number):
            table = self.rng.choice(TABLES)
            names = ["id", "email", "phone", "note", "amount", "born", "grp"]
            names += ["email2"] if table in self.added else []
            kind = self.rng.choices(("insert", "update", "delete", "move", "truncate", "add"), (9, 5, 2, 1, 0.3, 0.7))[
                0
            ]
            place = self.rng.randrange(4)
            if kind == "insert":
                yield f"insert into {table} values ({', '.join(self.value(table, name) for name in names)})"
            if kind == "update":
                column = self.rng.choice(names[1:])
                yield f"update {table} set {column} = {self.value(table, column)} where id % 4 = {place}"
            if kind == "delete":
                yield f"delete from {table} where id % 9 = {place}"
            if kind == "move":
                yield f"update {table} set id = id + 1000000 where id % 7 = {place}"
            if kind == "truncate":
                yield f"truncate {table}"
            if kind == "add" and table not in self.added:
                self.added.add(table)
                yield f"alter table {table} add column email2 text default {self.value(table, 'email2')}"

    def write(self, number: int) -> None:
        self.source.run(*self.statements(number))


def check(settings: Settings, capture: Choosing, source: Source, written: Mapping[str, tuple[str, str]]) -> None:
    """The lake has what the model says, and no file a value that the settings hide."""
    lake = capture.lake
    for table in settings.chosen():
        known = capture.table(table)
        assert known.stage == "streaming", known.reason
        layers = settings.last(table, "layers", "both")
        with source.connect() as connection:
            cursor = connection.execute(f"select * from {table}".encode())
            names = [column.name for column in cursor.description or ()]
            shown = ", ".join(f"{name}::text" for name in names)
            found = connection.execute(f"select {shown} from {table}".encode()).fetchall()
        kept = [name for name in names if settings.keeps(table, name)]
        assert [column.name for column in known.columns] == kept
        if layers == "changes":
            continue
        expected = Counter(
            tuple(settings.value(table, name, text) for name, text in zip(names, row, strict=True) if name in kept)
            for row in found
        )
        rows = lake.catalog.table(settings.name(table)).to_pyarrow_table().to_pylist()
        held = Counter(tuple(None if row[name] is None else str(row[name]) for name in kept) for row in rows)
        assert held == expected, table
        partitions = lake.catalog.table(settings.name(table)).metadata().partition_columns
        assert partitions == settings.last(table, "partition_by", [])
    hidden = {
        text: f"{column} of {table}" for text, (table, column) in written.items() if settings.hides(table, column)
    }
    check_hidden(lake, hidden)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_captured_masked_and_routed_is_what_the_file_says(
    lake: Lake, source: Source, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    writer = Writer(rng, source)
    writer.create()
    writer.write(30)
    first = Settings.draw(rng)
    asked = settings_from(first.toml(), source, tmp_path)
    if first.is_refused():
        with (
            pytest.raises(CaptureSetupError, match="would both be"),
            choosing(lake, source, asked),
        ):
            pass
        return
    with choosing(lake, source, asked) as capture:
        ours = [name for name in lake.catalog.tables() if not name.startswith("cdc.")]
        assert sorted(ours) == sorted(first.lake_tables())
        for _ in range(3):
            writer.write(12)
            capture.settle()
        check(first, capture, source, writer.written)
        # The file is edited. What was captured before stays in older versions, so that only new values are looked for.
        second = Settings.draw(rng)
        try:
            capture.apply(settings_from(second.toml(), source, tmp_path))
        except CaptureSetupError:
            return
        before = set(writer.written)
        capture.copy()
        for _ in range(2):
            writer.write(12)
            capture.settle()
        check(second, capture, source, {text: of for text, of in writer.written.items() if text not in before})
