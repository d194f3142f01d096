"""Cases of a capture: pgoutput, the texts of values, and what is known of the tables at the source."""

from __future__ import annotations

from random import Random

import pyarrow as pa

from deltalakedb.cdc.decode.pgoutput import Decoder
from deltalakedb.cdc.decode.values import convert, parse_array, parse_record
from deltalakedb.cdc.lsn import parse_lsn
from deltalakedb.cdc.settings import parse_duration, parse_size
from deltalakedb.cdc.source_names import parse_source
from deltalakedb.log.schema.types import ArrayType, DataType, DecimalType, PrimitiveType
from tests.cdc import pgoutput_messages as pg
from tests.cdc.test_pgoutput import BOOKS, NOON, ORDERS, OTHER, RELATIONS
from tests.fuzz.cases import parser
from tests.fuzz.mutations import damage_bytes, damage_text

MESSAGES = [
    pg.begin(1000, NOON, 7), *RELATIONS, pg.insert(100, ["1", "first"]), pg.update(100, ["1", pg.UNCHANGED]),
    pg.update(200, ["1", "x" * 50], {"O": ["1", "y"]}), pg.delete(100, "K", ["1", None]), pg.insert(300, ["5"]),
    pg.truncate(100, 200), pg.origin("o"), pg.type_message(5, "mood"), pg.logical_message("p", b"content"),
    pg.commit(1000), pg.begin(2000, NOON, 8), pg.insert(200, ["2", None]), pg.commit(2000),
]  # fmt: skip


@parser("messages of pgoutput", says=("source",), cases=200)
def decode_messages(random: Random) -> object:
    messages = list(MESSAGES)
    for _ in range(random.choice((1, 1, 2))):
        place = random.randrange(len(messages))
        match random.randrange(8):
            case 0:
                del messages[place]
            case 1:
                messages.insert(place, random.choice(MESSAGES))
            case _:
                messages[place] = damage_bytes(random, messages[place], MESSAGES)
    decoder = Decoder([ORDERS, BOOKS] if random.random() < 0.8 else [ORDERS, BOOKS, OTHER], 0, 1 << 60)
    size = random.choice((1, 3, 100))
    for first in range(0, len(messages), size):
        for event in decoder.decode(pa.array(messages[first : first + size], pa.binary())):
            rows = getattr(event, "rows", None)
            if rows is not None:
                rows.validate(full=True)
                rows.to_pylist()
    return decoder.finish()


VALUES: list[tuple[str, DataType]] = [
    ("12", PrimitiveType("long")), ("1.5", PrimitiveType("double")), ("t", PrimitiveType("boolean")),
    ("2026-01-01", PrimitiveType("date")), ("0044-03-15 BC", PrimitiveType("date")),
    ("2026-01-01 10:00:00.123+02:30", PrimitiveType("timestamp")), ("infinity", PrimitiveType("timestamp")),
    ("2026-01-01 10:00:00", PrimitiveType("timestamp_ntz")), ("\\\\x00ff", PrimitiveType("binary")),
    ("12.345", DecimalType(10, 2)), ("{1,2,NULL}", ArrayType(PrimitiveType("long"), True)),
    ('{"a b",c,"d\\\\"e"}', ArrayType(PrimitiveType("string"), True)),
    ("[2:3]={1,2}", ArrayType(PrimitiveType("long"), True)),
    ("{{1,2},{3,4}}", ArrayType(ArrayType(PrimitiveType("long"), True), True)),
]  # fmt: skip


@parser("values of a source", says=("public.orders.x",), cases=200)
def convert_value(random: Random) -> object:
    text, kind = random.choice(VALUES)
    if random.random() < 0.1:
        text = random.choice(("9" * 5000, "1e999999999", "{" * 3000 + "}" * 3000, "NaN", "", "{", "1" * 30 + ".5"))
    damaged = damage_text(random, text)
    return convert(pa.array([text if random.random() < 0.1 else damaged, None]), kind, where="public.orders.x")


@parser("records and arrays as text", cases=100)
def parse_composites(random: Random) -> object:
    text = damage_text(random, random.choice(('(1,"a b",,"x""y")', "{1,2,NULL}", '{"a,b",{c}}', "(" * 500)))
    return [parse_record(text, 4), parse_array(text)]


@parser("settings of a capture", cases=50)
def parse_settings(random: Random) -> object:
    text = damage_text(random, random.choice(("64MB", "1.5s", "public.orders", '"My ""T"""."x"', "0/16B3748")))
    return random.choice((parse_size, parse_duration, parse_source, parse_lsn))(text)
