"""Writes partition values: their text in the log, the names of their folders, and the split of batches."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.exceptions import SchemaMismatchError
from deltalakedb.log.schema.types import DecimalType, PrimitiveType, StructField

PartitionKey: TypeAlias = tuple[str | None, ...]

HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_UNSAFE_IN_NAMES: Final = re.compile(r"[\x00-\x1f\x7f/\\]")
"""Characters of a column name that are escaped in a folder's name; `deltalake` keeps all others."""
_MAX_NAME_BYTES: Final = 255
_NO_PARTITIONS = frozenset({"void", "variant"})


def check_partition_field(item: StructField) -> None:
    """SchemaMismatchError if the type cannot partition a table: it must be primitive."""
    if not isinstance(item.type, PrimitiveType | DecimalType) or str(item.type) in _NO_PARTITIONS:
        raise SchemaMismatchError(f"column {item.name!r} cannot be a partition column: its type is {item.type}")


def value_texts(values: pa.Array, item: StructField) -> list[str | None]:
    """Partition values as text for the log (PROTOCOL.md, "Partition Value Serialization").

    The empty string is null, as in Spark: the protocol has no other meaning for it. `deltalake` writes it unchanged,
    and is the only reader that then reads it as text.
    """
    texts = [text or None for text in _texts(values, item)]
    if not item.nullable and None in texts:
        raise SchemaMismatchError(
            f"column {item.name!r}: the table does not let it be null, and an empty partition value is null"
        )
    return texts


def _texts(values: pa.Array, item: StructField) -> list[str | None]:
    if isinstance(item.type, DecimalType):
        return [None if value is None else _plain(value) for value in values.to_pylist()]
    match str(item.type):
        case "timestamp":
            # with its zone, as the protocol prefers: without one a reader uses its session's zone
            return _to_list(pc.strftime(values, format="%Y-%m-%dT%H:%M:%SZ"))
        case "timestamp_ntz":
            return _to_list(pc.strftime(values, format="%Y-%m-%d %H:%M:%S"))
        case "boolean":
            return [None if value is None else str(value).lower() for value in values.to_pylist()]
        case "float":
            return [None if value is None else float_text(np.float32(value)) for value in values.to_pylist()]
        case "double":
            return [None if value is None else float_text(np.float64(value)) for value in values.to_pylist()]
        case "binary":
            # each byte becomes the character with the same number
            return [None if value is None else value.decode("latin-1") for value in values.to_pylist()]
        case _:
            return _to_list(values.cast(pa.string()))


def _to_list(values: pa.Array) -> list[str | None]:
    texts: list[str | None] = values.to_pylist()
    return texts


def _plain(value: Decimal) -> str:
    return format(value, "f")


def float_text(value: Any) -> str:
    """The shortest digits that give the same value, without an exponent: `1`, `-0`, `inf`, as in `deltalake`."""
    return "NaN" if np.isnan(value) else str(np.format_float_positional(value, trim="-"))


def folder_of(names: Sequence[str], key: PartitionKey) -> str:
    """The folder `name=value/...`, named as `deltalake` does on disk."""
    return "/".join(_folder(name, text) for name, text in zip(names, key, strict=True))


def _folder(name: str, text: str | None) -> str:
    folder = f"{_escape_name(name)}={HIVE_NULL if text is None else _escape_value(text)}"
    octets = folder.encode("utf-8", "surrogatepass")
    if len(octets) <= _MAX_NAME_BYTES:
        return folder
    # No file system allows a longer name, and Delta readers ignore the folder's name.
    digest = hashlib.sha256(octets).hexdigest()[:16]
    return f"{octets[: _MAX_NAME_BYTES - 20].decode(errors='ignore')}-{digest}"


def _escape_name(name: str) -> str:
    return _UNSAFE_IN_NAMES.sub(lambda match: f"%{ord(match.group()):02X}", name)


def _escape_value(text: str) -> str:
    """Percent-encode all but ASCII letters, digits and `-._~`; a lone surrogate is encoded like any other bytes."""
    return quote(text.encode("utf-8", "surrogatepass"), safe="")


def split(columns: Sequence[pa.Array], fields: Sequence[StructField]) -> Iterator[tuple[PartitionKey, pa.Array | None]]:
    """The partitions of a batch, with the indices of their rows in order; None means all rows."""
    codes: Any = np.zeros(len(columns[0]), np.int64)
    keys: list[PartitionKey] = [()]
    for values, item in zip(columns, fields, strict=True):
        encoded = values.dictionary_encode(null_encoding="encode")
        texts = value_texts(encoded.dictionary, item)
        distinct = {text: position for position, text in enumerate(dict.fromkeys(texts))}
        value_codes = np.array([distinct[text] for text in texts], np.int64)[encoded.indices.to_numpy()]
        distinct_codes, codes = np.unique(codes * len(distinct) + value_codes, return_inverse=True)
        names = list(distinct)
        keys = [(*keys[code // len(names)], names[code % len(names)]) for code in distinct_codes.tolist()]
    if len(keys) == 1:
        yield keys[0], None
        return
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(keys)))
    for position, rows in enumerate(np.split(order, ends[:-1])):
        yield keys[position], pa.array(rows)
