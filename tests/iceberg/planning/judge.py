"""Judges plans by brute force: which rows a reader of the planned files sees, with the deletes that were attached."""

import math
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from tests.iceberg.planning.columns import KINDS, transformed
from tests.iceberg.planning.lake import File, Lake, Row

Test = Callable[[Row], bool]
Place = tuple[str, int]


# ---- what a plan gives to read


def visible(tasks: Mapping[str, Any], lake: Lake) -> set[Place]:
    """The rows that a reader sees: all of the planned files but those that the attached deletes take away."""
    data = {item.path: item for item in lake.files}
    deletes = {item.path: item for item in lake.deletes}
    places: set[Place] = set()
    for task in tasks["file-scan-tasks"]:
        file = data[task["data-file"]["file-path"]]
        attached = [
            deletes[tasks["delete-files"][place]["file-path"]] for place in task.get("delete-file-references", ())
        ]
        places |= {
            (file.path, n) for n, row in enumerate(file.rows) if not any(_deletes(d, file, n, row) for d in attached)
        }
    return places


def _deletes(delete: File, file: File, position: int, row: Row) -> bool:
    if delete.content == 1:
        return position in delete.positions.get(file.path, ())
    return any(same(row, values, delete.extra["equality_ids"]) for values in delete.rows)


def same(row: Row, values: Row, columns: list[int]) -> bool:
    return all(_equal(row.get(column), values.get(column)) for column in columns)


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left) and math.isnan(right):
        return True
    return bool(left == right)


# ---- random conditions


def draw_condition(random: Random, lake: Lake, depth: int = 0) -> tuple[Any, Test]:
    """A condition in JSON, and as a function of a row. Nulls are not equal to anything, NaN is above all numbers."""
    choice = random.random()
    if depth < 2 and choice < 0.45:
        operator = random.choice(("and", "or"))
        (left_json, left), (right_json, right) = (draw_condition(random, lake, depth + 1) for _ in range(2))
        both = {"type": operator, "left": left_json, "right": right_json}
        if operator == "and":
            return both, lambda row: left(row) and right(row)
        return both, lambda row: left(row) or right(row)
    if depth < 2 and choice < 0.55:
        json, test = draw_test(random, lake, negatable=True)
        return {"type": "not", "child": json}, lambda row: not test(row)
    return draw_test(random, lake)


def draw_test(random: Random, lake: Lake, *, negatable: bool = False) -> tuple[Any, Test]:
    column, (name, kind_name) = random.choice(list(lake.columns.items()))
    kind = KINDS[kind_name]
    operators = ["is-null", "not-null"]
    if not negatable:  # what these make of null is not negated
        operators += ["lt", "lt-eq", "gt", "gt-eq", "not-eq", "not-in"]
    operators += ["eq", "in"] * 2
    if kind.is_float:
        operators += ["is-nan"]
    if kind_name == "string":
        operators += ["starts-with"] + ["not-starts-with"] * (not negatable)
    operator = random.choice(operators)
    literals = [_literal(random, lake, column, kind_name) for _ in range(random.randint(1, 3))]
    if operator not in ("in", "not-in"):
        literals = literals[:1]
    term: Any = name
    value_of: Callable[[Row], Any] = lambda row: row.get(column)  # noqa: E731
    json = _to_json(random, operator, term, column, [kind.to_json(value) for value in literals])
    return json, lambda row: holds(operator, value_of(row), literals)


def _literal(random: Random, lake: Lake, column: int, kind: str) -> Any:
    """A value that is in the table, or any other; JSON has no infinite numbers."""
    present = [row[column] for file in lake.files for row in file.rows if row.get(column) is not None]
    value = random.choice(present) if present and random.random() < 0.7 else KINDS[kind].draw(random)
    while isinstance(value, float) and not math.isfinite(value):
        value = KINDS[kind].draw(random)
    return value


def _to_json(random: Random, operator: str, name: str, column: int, literals: list[Any]) -> Any:
    if random.random() < 0.6:  # the older form
        if operator in ("in", "not-in"):
            return {"type": operator, "term": name, "values": literals}
        if operator.endswith(("null", "nan")):
            return {"type": operator, "term": {"type": "reference", "term": name} if random.random() < 0.3 else name}
        return {"type": operator, "term": name, "value": literals[0]}
    reference = {"type": "reference", **({"id": column} if random.random() < 0.5 else {"name": name})}
    if operator in ("in", "not-in"):
        values = [{"type": "literal", "value": value} if random.random() < 0.5 else value for value in literals]
        return {"type": operator, "child": reference, "values": values}
    if operator.endswith(("null", "nan")):
        return {"type": operator, "child": reference}
    operand = {"type": "literal", "value": literals[0]} if random.random() < 0.5 else literals[0]
    swapped = {"lt": "gt", "gt": "lt", "lt-eq": "gt-eq", "gt-eq": "lt-eq", "eq": "eq", "not-eq": "not-eq"}
    if operator in swapped and random.random() < 0.3:
        return {"type": swapped[operator], "left": operand, "right": reference}
    return {"type": operator, "left": reference, "right": operand}


def holds(operator: str, value: Any, literals: list[Any]) -> bool:
    """Whether a reader may keep a row with this value: where readers differ, the answer is yes."""
    if operator == "is-null":
        return value is None
    if operator == "not-null":
        return value is not None
    if operator == "is-nan":
        return value is not None and math.isnan(value)
    if value is None:
        return operator in ("not-eq", "not-in", "not-starts-with")
    if operator in ("eq", "in"):
        return any(value == literal for literal in literals)
    if operator in ("not-eq", "not-in"):
        return all(_key(value) != _key(literal) for literal in literals)
    if operator.endswith("starts-with"):
        return bool(value.startswith(literals[0])) == (operator == "starts-with")
    compared, literal = _key(value), _key(literals[0])
    return {
        "lt": compared < literal, "lt-eq": compared <= literal, "gt": compared > literal, "gt-eq": compared >= literal,
    }[operator] or (operator.endswith("eq") and value == literals[0])  # fmt: skip


def _key(value: Any) -> Any:
    """The order of Java: -0.0 is below 0.0, and NaN above all."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1, value))
    return value


def draw_transform_test(random: Random, lake: Lake) -> tuple[Any, Test]:
    """A condition on a transform of a column."""
    columns = [(n, name, kind) for n, (name, kind) in lake.columns.items() if len(KINDS[kind].transforms) > 1]
    if not columns:
        return draw_test(random, lake)
    column, name, kind = random.choice(columns)
    transform = random.choice(KINDS[kind].transforms[1:])
    if transform.startswith("truncate") or transform == "day":
        transform = random.choice(KINDS[kind].transforms[1:])
    literal = transformed(transform, kind, _literal(random, lake, column, kind))
    value = KINDS["date"].to_json(literal) if transform == "day" else literal
    if transform.startswith("truncate"):
        value = KINDS[kind].to_json(literal)
    term = {"type": "transform", "transform": transform, "term": name}
    return {
        "type": "eq",
        "term": term,
        "value": value,
    }, lambda row: row.get(column) is not None and transformed(transform, kind, row[column]) == literal
