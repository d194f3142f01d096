"""Owns partition values on their way out: their text in the log, the names of their folders, batches split by them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.exceptions import SchemaMismatchError
from deltalakedb.log.types import DecimalType, PrimitiveType, StructField

PartitionKey: TypeAlias = tuple[str | None, ...]

HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
# The characters that Hive and Spark escape in a folder's name; NUL is ours, no file system can hold it.
_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
_MAX_NAME_BYTES: Final = 255
_NO_PARTITIONS = frozenset({"void", "variant"})


def check_partition_field(item: StructField) -> None:
    """Partition columns are primitive."""
    if not isinstance(item.type, PrimitiveType | DecimalType) or str(item.type) in _NO_PARTITIONS:
        raise SchemaMismatchError(f"column {item.name!r} cannot be a partition column: its type is {item.type}")


def value_texts(values: pa.Array, item: StructField) -> list[str | None]:
    """Partition values as the log spells them (PROTOCOL.md, "Partition Value Serialization").

    The empty string is null, as in Spark: the protocol has no other meaning for it.
    """
    texts = [None if value is None else value or None for value in _texts(values, item)]
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
            # with its zone, as the protocol prefers: without one a reader takes the zone of its session
            return _to_list(pc.strftime(values, format="%Y-%m-%dT%H:%M:%SZ"))
        case "timestamp_ntz":
            return _to_list(pc.strftime(values, format="%Y-%m-%d %H:%M:%S"))
        case "boolean":
            return [None if value is None else str(value).lower() for value in values.to_pylist()]
        case "float":
            return [None if value is None else _float(str(np.float32(value))) for value in values.to_pylist()]
        case "double":
            return [None if value is None else _float(repr(value)) for value in values.to_pylist()]
        case "binary":
            # a byte is the character of the same number
            return [None if value is None else value.decode("latin-1") for value in values.to_pylist()]
        case _:
            return _to_list(values.cast(pa.string()))


def _to_list(values: pa.Array) -> list[str | None]:
    texts: list[str | None] = values.to_pylist()
    return texts


def _plain(value: Decimal) -> str:
    return format(value, "f")


def _float(text: str) -> str:
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(text, text)


def folder_of(names: Sequence[str], key: PartitionKey) -> str:
    """`name=value/...` as Hive and Spark name it on disk."""
    return "/".join(_folder(name, text) for name, text in zip(names, key, strict=True))


def _folder(name: str, text: str | None) -> str:
    folder = f"{escape(name)}={HIVE_NULL if text is None else escape(text)}"
    whole = folder.encode("utf-8", "surrogatepass")
    if len(whole) <= _MAX_NAME_BYTES:
        return folder
    # No file system takes a longer name. What the folder is called means nothing to a reader of Delta.
    digest = hashlib.sha256(whole).hexdigest()[:16]
    return f"{whole[: _MAX_NAME_BYTES - 20].decode(errors='ignore')}-{digest}"


def escape(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match.group()):02X}", text)


def split(columns: Sequence[pa.Array], fields: Sequence[StructField]) -> Iterator[tuple[PartitionKey, pa.Array | None]]:
    """The partitions of a batch and the rows of each, as indices in their order; None stands for all rows."""
    codes: Any = np.zeros(len(columns[0]), np.int64)
    keys: list[PartitionKey] = [()]
    for values, item in zip(columns, fields, strict=True):
        encoded = values.dictionary_encode(null_encoding="encode")
        texts = value_texts(encoded.dictionary, item)
        distinct = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        places = np.array([distinct[text] for text in texts], np.int64)[encoded.indices.to_numpy()]
        known, codes = np.unique(codes * len(distinct) + places, return_inverse=True)
        names = list(distinct)
        keys = [(*keys[code // len(names)], names[code % len(names)]) for code in known.tolist()]
    if len(keys) == 1:
        yield keys[0], None
        return
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(keys)))
    for place, rows in enumerate(np.split(order, ends[:-1])):
        yield keys[place], pa.array(rows)
