"""Random schemas, of new tables and made from those of a table: most are valid."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Draw = st.DrawFn
Json = dict[str, Any]

NAMES = st.sampled_from(["a", "b", "c", "d", "id", "ts", "element", "a.b", "x_day"])
PRIMITIVES = {
    "boolean": True,
    "int": 3,
    "long": 2**40,
    "float": 1.5,
    "double": -2.25,
    "decimal(9, 2)": "14.20",
    "date": "2026-01-31",
    "time": "10:20:30.000001",
    "timestamp": "2026-01-31T10:20:30.000001",
    "timestamptz": "2026-01-31T10:20:30.000001+00:00",
    "string": "x",
    "uuid": "0b3d2cf8-44bb-4c08-8c6c-2f1f6b1d7a30",
    "fixed[2]": "0AFF",
    "binary": "01",
}
NEW_TYPES = ["timestamp_ns", "timestamptz_ns", "variant", "unknown", "geometry(OGC:CRS84)"]


def rare(draw: Draw, one_in: int) -> bool:
    """True about once in so many times, and false in the simplest example."""
    return draw(st.integers(1, one_in)) == one_in


class Ids:
    """Gives out field ids."""

    def __init__(self, first: int) -> None:
        self.last = first - 1

    def next(self) -> int:
        self.last += 1
        return self.last


def draw_type(draw: Draw, ids: Ids, depth: int = 0) -> Any:
    """A type, nested at most three levels deep."""
    kind = draw(st.integers(0, 12 if depth < 2 else 9))
    if kind < 9:
        return draw(st.sampled_from(sorted(PRIMITIVES)))
    if kind == 9:
        return draw(st.sampled_from(NEW_TYPES if rare(draw, 4) else sorted(PRIMITIVES)))
    if kind == 10:
        return {"type": "struct", "fields": draw_fields(draw, ids, depth + 1)}
    if kind == 11:
        element_id = ids.next()
        return {"type": "list", "element-id": element_id, "element": draw_type(draw, ids, depth + 1),
                "element-required": draw(st.booleans())}  # fmt: skip
    key_id, value_id = ids.next(), ids.next()
    return {"type": "map", "key-id": key_id, "key": draw_type(draw, ids, depth + 1), "value-id": value_id,
            "value": draw_type(draw, ids, depth + 1), "value-required": draw(st.booleans())}  # fmt: skip


def draw_field(draw: Draw, ids: Ids, depth: int = 0) -> Json:
    """A field of a struct."""
    field: Json = {"id": ids.next(), "name": draw(NAMES), "required": draw(st.booleans())}
    field["type"] = draw_type(draw, ids, depth)
    if rare(draw, 6):
        field["doc"] = draw(st.sampled_from(["", "a text", "größe"]))
    if isinstance(field["type"], str) and field["type"] in PRIMITIVES and rare(draw, 8):
        chosen = draw(st.sampled_from(["initial-default", "write-default"]))
        field[chosen] = PRIMITIVES[field["type"]]
    return field


def draw_fields(draw: Draw, ids: Ids, depth: int = 0) -> list[Json]:
    """Fields whose names are mostly different."""
    fields = [draw_field(draw, ids, depth) for _ in range(draw(st.integers(1, 4)))]
    if not rare(draw, 10):
        fields = list({field["name"]: field for field in fields}.values())
    return fields


@st.composite
def schemas(draw: Draw) -> Json:
    """A schema of a new table, whose field ids may be any; many are wrong."""
    ids = Ids(draw(st.sampled_from([0, 1, 5])))
    schema = {"type": "struct", "schema-id": draw(st.integers(0, 3)), "fields": draw_fields(draw, ids)}
    return with_identifiers(draw, schema)


@st.composite
def valid_schemas(draw: Draw) -> Json:
    """A schema that all format versions take."""
    names = draw(st.lists(NAMES.filter(lambda name: "." not in name), min_size=1, max_size=5, unique=True))
    fields: list[Json] = []
    for place, name in enumerate(names):
        type_json: Any = draw(st.sampled_from(["long", "string", "timestamp", "date", "int"]))
        if place == 1:
            type_json = draw(st.sampled_from([
                {"type": "struct", "fields": [{"id": 20, "name": "x", "required": True, "type": "long"}]},
                {"type": "list", "element-id": 21, "element": "string", "element-required": False},
            ]))  # fmt: skip
        fields.append({"id": place, "name": name, "required": draw(st.booleans()), "type": type_json})
    return {"type": "struct", "schema-id": 0, "fields": fields}


def with_identifiers(draw: Draw, schema: Json) -> Json:
    """Sometimes with identifier fields."""
    if not rare(draw, 4):
        return schema
    candidates = [field["id"] for field in schema["fields"] if field["required"] and field["type"] in ("int", "long")]
    if not candidates and not rare(draw, 5):
        return schema
    return {**schema, "identifier-field-ids": candidates or [draw(st.integers(0, 3))]}


@st.composite
def schema_changes(draw: Draw, metadata: Json) -> Json:
    """A schema as a client makes it from one of the table's: columns are added, dropped, renamed, documented."""
    old = draw(st.sampled_from(metadata["schemas"]))
    fields = [dict(field) for field in old["fields"]]
    ids = Ids(metadata["last-column-id"] + 1)
    for _ in range(draw(st.integers(0, 2))):
        change = draw(st.integers(0, 4))
        place = draw(st.integers(0, len(fields) - 1)) if fields else 0
        if change <= 1 or not fields:
            fields.append(draw_field(draw, ids))
        elif change == 2:
            fields.pop(place)
        elif change == 3:
            fields[place]["name"] = draw(NAMES)
        else:
            fields[place]["required"] = False
    kept = {field["id"] for field in fields if field["required"]}
    schema = {"type": "struct", "schema-id": draw(st.integers(0, 5)), "fields": fields}
    identifiers = [one for one in old.get("identifier-field-ids", []) if one in kept]
    return {**schema, "identifier-field-ids": identifiers} if identifiers else with_identifiers(draw, schema)
