"""Reads Avro files that nobody vouches for: every size is bounded, and fields are found by their Iceberg field ids."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import fastavro
import pyarrow as pa

from deltalakedb.exceptions import MalformedLogError

MAX_FILE_BYTES: Final = 256 * 2**20
MAX_BLOCK_BYTES: Final = 32 * 2**20
MAX_BLOCK_RECORDS: Final = 500_000
MAX_DECODED_BYTES: Final = 2 * 2**30
_MAX_HEADER_BYTES: Final = 16 * 2**20
_MAX_SCHEMA_NODES: Final = 20_000
_MAGIC: Final = b"Obj\x01"
_BAD_SCHEMA: Final = (ValueError, TypeError, AttributeError, KeyError, RecursionError)
_LEAST_BYTES: Final = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1}

Record = dict[str, Any]
"""A decoded record: values by field id, as `f102`. Logical types are left as they are stored."""


class UnreadableAvroError(Exception):
    """The bytes are not an Avro file that a manifest can be."""


@dataclass(frozen=True, slots=True)
class AvroFile:
    """The header of an Avro file, and its content."""

    path: str
    metadata: Mapping[str, str]
    _schema: Any
    _codec: str
    _sync: bytes
    _data: bytes
    _start: int

    def records(self) -> Iterator[Record]:
        """Yields the records; MalformedLogError if the file is damaged."""
        decoded_bytes = 0
        cursor = _Cursor(self._data, self._start)
        try:
            while cursor.position < len(self._data):
                count, block = cursor.long(), cursor.take(cursor.long())
                if cursor.take(16) != self._sync:
                    raise UnreadableAvroError("a block does not end with the marker of the file")
                content = _decompress(self._codec, block)
                decoded_bytes += len(content)
                if decoded_bytes > MAX_DECODED_BYTES:
                    raise UnreadableAvroError(f"it holds more than {MAX_DECODED_BYTES} bytes")
                yield from self._decode(count, content)
        except UnreadableAvroError as error:
            raise _malformed(self.path, error) from error

    def _decode(self, count: int, content: bytes) -> list[Record]:
        if not 0 <= count <= min(len(content), MAX_BLOCK_RECORDS):  # a record has at least one byte
            raise UnreadableAvroError(f"a block of {len(content)} bytes claims to hold {count} records")
        # As one array, the whole block is decoded in one call.
        stream = io.BytesIO(_zigzag(count) + content + b"\0" if count else b"\0")
        try:
            records = fastavro.schemaless_reader(stream, self._schema, None)
        except Exception as error:  # whatever the decoder stumbles over
            raise UnreadableAvroError(f"a record cannot be decoded: {type(error).__name__}: {error}") from error
        if stream.read(1) or not isinstance(records, list):
            raise UnreadableAvroError("a block holds more than its records")
        return records


def open_avro(path: str, data: bytes) -> AvroFile:
    """Reads the header of an Avro file; MalformedLogError if it has none, or a schema without field ids."""
    try:
        cursor = _Cursor(data, 0)
        if cursor.take(4) != _MAGIC:
            raise UnreadableAvroError("it does not begin like an Avro file")
        metadata = _read_metadata(cursor)
        sync = cursor.take(16)
        codec = metadata.get("avro.codec", b"null").decode("utf-8", "replace")
        schema = _Schema().read(json.loads(metadata.get("avro.schema", b"")))
        parsed = fastavro.parse_schema({"type": "array", "items": schema})
        texts = {key: value.decode("utf-8", "replace") for key, value in metadata.items()}
        return AvroFile(path, texts, parsed, codec, sync, data, cursor.position)
    except UnreadableAvroError as error:
        raise _malformed(path, error) from error
    except (*_BAD_SCHEMA, fastavro.schema.SchemaParseException) as error:
        raise _malformed(path, error) from error


def _malformed(path: str, error: Exception) -> MalformedLogError:
    return MalformedLogError(f"cannot read the Avro file {path}: {error}")


def _read_metadata(cursor: _Cursor) -> dict[str, bytes]:
    metadata: dict[str, bytes] = {}
    while count := cursor.long():
        if count < 0:  # then the size of the block in bytes follows
            count = -count
            cursor.long()
        for _ in range(count):
            key = cursor.take(cursor.long()).decode("utf-8", "replace")
            metadata[key] = cursor.take(cursor.long())
            if cursor.position > _MAX_HEADER_BYTES:
                raise UnreadableAvroError("its header is too large")
    return metadata


class _Cursor:
    """Reads numbers and pieces of a byte string, and never beyond its end."""

    __slots__ = ("_data", "position")

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self.position = position

    def take(self, length: int) -> bytes:
        end = self.position + length
        if length < 0 or end > len(self._data):
            raise UnreadableAvroError("it is cut short")
        piece = self._data[self.position : end]
        self.position = end
        return piece

    def long(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            if shift >= 70:
                raise UnreadableAvroError("a number is too long")


def _zigzag(value: int) -> bytes:
    value <<= 1
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


# ---- codecs


def _decompress(codec: str, block: bytes) -> bytes:
    try:
        if codec == "null":
            content = block
        elif codec == "deflate":
            content = zlib.decompressobj(-15).decompress(block, MAX_BLOCK_BYTES + 1)
        elif codec == "snappy":
            content = _decompress_snappy(block)
        elif codec in ("zstandard", "zstd"):
            with pa.input_stream(pa.BufferReader(block), compression="zstd") as stream:
                content = stream.read(MAX_BLOCK_BYTES + 1)
        else:
            raise UnreadableAvroError(f"its codec {codec!r} is not known")
    except (zlib.error, OSError, pa.ArrowException) as error:
        raise UnreadableAvroError(f"a block cannot be decompressed: {error}") from error
    if len(content) > MAX_BLOCK_BYTES:
        raise UnreadableAvroError(f"a block holds more than {MAX_BLOCK_BYTES} bytes")
    return content


def _decompress_snappy(block: bytes) -> bytes:
    """Snappy's own header says how long the content is; Avro adds its checksum."""
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > MAX_BLOCK_BYTES or len(block) < 5:
        raise UnreadableAvroError(f"a block claims to hold {size} bytes")
    content = pa.Codec("snappy").decompress(block[:-4], size, asbytes=True)
    if zlib.crc32(content).to_bytes(4, "big") != block[-4:]:
        raise UnreadableAvroError("a block does not have its checksum")
    return bytes(content)


# ---- schemas


class _Schema:
    """Converts a file's schema: fields are named by their field ids, and logical types are dropped."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._nodes = 0

    def read(self, schema: Any) -> dict[str, Any]:
        """The schema of the file's records."""
        converted = self._convert(schema, "")
        if not isinstance(converted, dict) or converted.get("type") != "record" or least_bytes(converted) == 0:
            raise UnreadableAvroError("its schema is not a record with fields")
        return converted

    def _convert(self, node: Any, namespace: str) -> Any:
        self._nodes += 1
        if self._nodes > _MAX_SCHEMA_NODES:
            raise UnreadableAvroError("its schema is too large")
        if isinstance(node, list):
            return [self._convert(item, namespace) for item in node]
        if isinstance(node, str):
            if node in _LEAST_BYTES:
                return node
            return self._again(node, namespace)
        if not isinstance(node, dict):
            raise UnreadableAvroError("its schema is malformed")
        kind = node.get("type")
        if kind == "record":
            return self._record(node, namespace)
        if kind == "fixed" and isinstance(node.get("size"), int) and 0 <= node["size"] <= 2**16:
            return self._define(node, namespace, {"type": "fixed", "size": node["size"]})
        if kind == "array":
            return {"type": "array", "items": self._items(node.get("items"), namespace)}
        if kind == "map":
            return {"type": "map", "values": self._convert(node.get("values"), namespace)}
        if isinstance(kind, str | dict | list) and kind != "fixed":
            return self._convert(kind, namespace)
        raise UnreadableAvroError("its schema is malformed")

    def _items(self, node: Any, namespace: str) -> Any:
        items = self._convert(node, namespace)
        if least_bytes(items) == 0:
            raise UnreadableAvroError("its schema has a list of nothing")
        return items

    def _record(self, node: dict[str, Any], namespace: str) -> Any:
        namespace = str(node.get("namespace", namespace))
        fields = []
        for field in node.get("fields", ()):
            field_id = field.get("field-id") if isinstance(field, dict) else None
            if not isinstance(field_id, int) or not -(2**31) < field_id < 2**31:
                raise UnreadableAvroError("a field of its schema has no field id")
            name = f"f{field_id}" if field_id >= 0 else f"f_{-field_id}"
            fields.append({"name": name, "type": self._convert(field.get("type"), namespace)})
        return self._define(node, namespace, {"type": "record", "fields": fields})

    def _define(self, node: dict[str, Any], namespace: str, converted: dict[str, Any]) -> dict[str, Any]:
        name = str(node.get("name", ""))
        for known in (name, f"{node.get('namespace', namespace)}.{name}"):
            self._named[known] = converted
        return self._fresh(converted)

    def _again(self, name: str, namespace: str) -> Any:
        """A type that was defined before; a type inside itself is not defined yet."""
        converted = self._named.get(name, self._named.get(f"{namespace}.{name}"))
        if converted is None:
            raise UnreadableAvroError(f"its schema names the unknown type {name[:100]!r}")
        return self._copy(converted)

    def _copy(self, node: Any) -> Any:
        self._nodes += 1
        if self._nodes > _MAX_SCHEMA_NODES:
            raise UnreadableAvroError("its schema is too large")
        if isinstance(node, list):
            return [self._copy(item) for item in node]
        if not isinstance(node, dict):
            return node
        copied = {
            key: self._copy(value) if key in ("type", "items", "values") else value for key, value in node.items()
        }
        if node["type"] == "record":
            copied["fields"] = [{"name": f["name"], "type": self._copy(f["type"])} for f in node["fields"]]
        return self._fresh(copied) if node["type"] in ("record", "fixed") else copied

    def _fresh(self, node: dict[str, Any]) -> dict[str, Any]:
        """The type under a name of its own."""
        self._nodes += 1
        return {**node, "name": f"t{self._nodes}"}


def least_bytes(node: Any) -> int:
    """The fewest bytes that a value of the type has: a list of items without bytes could claim any length."""
    if isinstance(node, str):
        return _LEAST_BYTES[node]
    if isinstance(node, list):
        return 1
    if node["type"] == "record":
        return sum(least_bytes(field["type"]) for field in node["fields"])
    return int(node["size"]) if node["type"] == "fixed" else 1
