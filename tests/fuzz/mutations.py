"""Damages valid input: bytes that are flipped, cut and spliced, and JSON whose values, names and shape are changed."""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Sequence
from random import Random
from typing import Any

_NUMBERS = (0, 1, -1, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, -(2**31), 2**32 - 1, 2**62, 2**63 - 1, -(2**63))
_BYTES = (
    b"\0",
    b"\xff",
    b"\xff" * 8,
    b"\x80" * 10,
    b"\n",
    b'"',
    b"{",
    b"[" * 50,
    b"\xed\xa0\x80",
    b"\xc3",
    b"\x7f" * 4,
)


def damage_bytes(random: Random, data: bytes, others: Sequence[bytes] = (), *, first: int = 0) -> bytes:
    """The data with a few changes, all of them after the first bytes; `others` lend pieces."""
    content = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        if len(content) <= first:
            break
        _damage(random, content, others, first)
    return bytes(content)


def _damage(random: Random, content: bytearray, others: Sequence[bytes], first: int) -> None:
    place = random.randrange(first, len(content))
    length = min(random.choice((1, 1, 2, 4, 8, 64)), len(content) - place)
    match random.randrange(9):
        case 0 | 1:
            content[place] ^= 1 << random.randrange(8)
        case 2:
            content[place] = random.randrange(256)
        case 3:
            content[place:place] = random.choice((*_BYTES, random.randbytes(length)))
        case 4:
            del content[place : place + length]
        case 5:
            del content[place:]
        case 6:
            content[place:place] = content[place : place + length] * random.choice((1, 3))
        case 7:
            number = random.choice(_NUMBERS)
            size, order = random.choice((2, 4, 8)), random.choice("<>")
            letter = {2: "H", 4: "I", 8: "Q"}[size]
            content[place : place + size] = struct.pack(order + letter, number % 2 ** (8 * size))
        case _:
            other = random.choice(others) if others else bytes(content)
            start = random.randrange(len(other) or 1)
            content[place : place + length] = other[start : start + random.choice((1, 8, 64, 1024))]


class Raw(str):
    """Text that stands in JSON as it is, for what no library writes."""

    __slots__ = ()


WRONG_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 1.5, -0.0, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**400,
    "", "x", "1", "\0", "\n", "null", "é" * 300, "x" * 5000, "../../etc/passwd", "%2e%2e/x", "file:///e",
    "/etc/passwd", "a\x1b[31mb\nc", "2026-01-01", "9999-12-31T23:59:59Z", "-9999999-01-01", "'; drop table x; --",
    [], {}, [None], [[]], {"a": None}, {"": ""}, {"type": "struct"}, ["x"] * 50,
    Raw("NaN"), Raw("-Infinity"), Raw("1e999999999"), Raw("-1e-999999999"), Raw("1" * 5000), Raw("1." + "7" * 5000),
    Raw('"\\ud800"'), Raw('"\\udc00\\ud800"'), Raw('"\\u0000"'), Raw("[" * 2000 + "]" * 2000),
    Raw('{"a":' * 2000 + "1" + "}" * 2000), Raw("0x10"), Raw("01"), Raw("1e400"),
)  # fmt: skip
"""What stands where something else is expected."""


def damage_json(random: Random, value: Any, others: Sequence[Any] = ()) -> Any:
    """A copy with a few values replaced, members removed, renamed or moved; `others` lend values."""
    holder = {"root": copy.deepcopy(value)}
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        _change(random, holder, others)
    return holder["root"]


def _change(random: Random, root: dict[str, Any], others: Sequence[Any]) -> None:
    holder: Any = root
    key: Any = "root"
    while isinstance(holder[key], dict | list) and holder[key] and random.random() < 0.85:
        holder = holder[key]
        key = random.choice(list(holder)) if isinstance(holder, dict) else random.randrange(len(holder))
    match random.randrange(7):
        case 0 if isinstance(holder, dict) and holder is not root:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.insert(random.randrange(len(holder) + 1), copy.deepcopy(holder[key]))
        case 2 if isinstance(holder, dict) and holder is not root:
            holder[f"{key}{random.choice(('', 'x', chr(0), ' '))}".swapcase()] = holder.pop(key)
        case 3 if isinstance(holder[key], str) and not isinstance(holder[key], Raw):
            holder[key] = damage_text(random, holder[key])
        case 4 if others:
            holder[key] = copy.deepcopy(random.choice(others))
        case 5:
            holder[key] = random.choice(([holder[key]], {"x": holder[key]}, str(holder[key])[:10_000]))
        case _:
            holder[key] = copy.deepcopy(random.choice(WRONG_VALUES))


def damage_text(random: Random, text: str) -> str:
    """The text with some bytes changed, as far as it can still be decoded."""
    return damage_bytes(random, text.encode("utf-8", "replace")).decode("utf-8", "replace")


def dump_json(random: Random, value: Any) -> str:
    """The value as JSON; now and then a member is written twice, with another value."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        members = [f"{json.dumps(str(name))}:{dump_json(random, item)}" for name, item in value.items()]
        if members and random.random() < 0.02:
            name = random.choice(list(value))
            members.append(f"{json.dumps(str(name))}:{dump_json(random, random.choice(WRONG_VALUES))}")
        return "{" + ",".join(members) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(dump_json(random, item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=random.random() < 0.5)


def damaged_json_text(random: Random, value: Any, others: Sequence[Any] = ()) -> bytes:
    """JSON that is damaged as a value, as bytes, or both."""
    kind = random.random()
    text = dump_json(random, damage_json(random, value, others) if kind < 0.75 else value)
    data = text.encode("utf-8", "surrogatepass")
    return damage_bytes(random, data) if kind > 0.65 else data
