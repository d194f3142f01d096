"""Masks: values of the lake that replace the source's values."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.cdc.decode.values import convert, convert_json
from deltalakedb.cdc.tables import Mask, fingerprint, resnapshot_command
from deltalakedb.exceptions import CaptureError, ValueNotHeld

if TYPE_CHECKING:
    from deltalakedb.cdc.tables import CapturedTable, SourceColumn

_FIRST_DAY: Final = -719_162
_LAST_DAY: Final = 2_932_896
"""Dates that can name a partition's folder: of the years 1 to 9999, in days since 1970."""
_BLOCK_BYTES: Final = 64
"""The block size of SHA-256."""


def mask_text(text: str | None, mask: Mask | None, key: str | None) -> str | None:
    """Mask one value, given as text."""
    return _mask(pa.array([text], pa.string()), mask, key)[0].as_py() if mask is not None else text


def convert_column(texts: pa.Array | pa.ChunkedArray, column: SourceColumn, key: str | None, *, where: str) -> pa.Array:
    """Convert the texts that Postgres prints into the lake's values of a column. Masks come first, so that no error
    shows a masked value."""
    if isinstance(texts, pa.ChunkedArray):
        texts = pa.concat_arrays(texts.chunks) if texts.num_chunks else pa.array([], texts.type)
    if column.mask is not None:
        texts = _mask(texts, column.mask, key)
    elif column.shape is not None:
        return convert_json(texts, column.shape, where=where)
    return convert(texts, column.type, where=where)


def convert_table_column(
    texts: pa.Array | pa.ChunkedArray, column: SourceColumn, table: CapturedTable, key: str | None
) -> pa.Array:
    """The same for a column of a table; ValueNotHeld if the lake's table cannot hold a value."""
    where = f"{table.source}.{column.name}"
    values = convert_column(texts, column, key, where=where)
    if table.options is None or column.name not in table.options.partition_by:
        return values
    if pa.types.is_string(values.type):
        place, what = pc.index(values, "").as_py(), "an empty text, which Delta cannot tell from null in"
    elif pa.types.is_date32(values.type):
        days = values.view(pa.int32())
        is_beyond = pc.or_(pc.less(days, _FIRST_DAY), pc.greater(days, _LAST_DAY))
        place, what = pc.index(is_beyond, True).as_py(), "a date before the year 1 or after 9999, which cannot be in"
    else:
        return values
    if place >= 0:
        raise ValueNotHeld(
            f"{where} has {what} a column that a table is partitioned by: take it out of partition_by, run dl cdc "
            f"apply, then {resnapshot_command(table.source)}",
            where=where,
            place=place,
        )
    return values


def _mask(texts: pa.Array, mask: Mask, key: str | None) -> pa.Array:
    if mask.kind == "null":
        return pa.nulls(len(texts), pa.string())
    if mask.kind == "constant":
        return pc.if_else(texts.is_valid(), pa.scalar(mask.text, pa.string()), pa.scalar(None, pa.string()))
    if key is None or (mask.key_id is not None and fingerprint(key) != mask.key_id):
        raise CaptureError(
            "a column is masked by a hash, and its key is not the one that the capture was begun with: set mask_key "
            "(DL_CDC_MASK_KEY) to that key, or have the tables copied anew with dl cdc apply"
        )
    values = texts.cast(pa.binary()).dictionary_encode()
    hashes = _hash(values.dictionary.to_pylist(), key.encode())
    return pa.array(hashes, pa.string()).take(values.indices)


def _hash(values: Iterable[bytes], key: bytes) -> list[str]:
    """HMAC-SHA256 of each value (RFC 2104). Both halves of the key are hashed once; `hmac.digest` would hash them for
    each value, which takes more than twice as long."""
    block = (key if len(key) <= _BLOCK_BYTES else hashlib.sha256(key).digest()).ljust(_BLOCK_BYTES, b"\0")
    inner, outer = (hashlib.sha256(bytes(byte ^ pad for byte in block)) for pad in (0x36, 0x5C))
    hashes = []
    for value in values:
        inside, outside = inner.copy(), outer.copy()
        inside.update(value)
        outside.update(inside.digest())
        hashes.append(outside.hexdigest())
    return hashes
