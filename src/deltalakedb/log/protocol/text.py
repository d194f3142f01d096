"""Owns the escaping of strings for databases and Arrow, and the hash of a file key."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

# Postgres' text rejects NUL, and UTF-8 has no lone surrogates; the backslash is escaped to keep the mapping one to one.
_UNSAFE = re.compile("[\\\\\x00\ud800-\udfff]")
_ESCAPED = re.compile(r"\\(?:\\|u([0-9a-f]{4}))")
_SURROGATE = re.compile("[\ud800-\udfff]")


def _escape(match: re.Match[str]) -> str:
    char = match.group()
    return "\\\\" if char == "\\" else f"\\u{ord(char):04x}"


def _unescape(match: re.Match[str]) -> str:
    digits = match.group(1)
    return chr(int(digits, 16)) if digits else "\\"


def to_sql_text(text: str) -> str:
    """Escapes text for SQL; ordinary text is returned unchanged (the same object)."""
    return _UNSAFE.sub(_escape, text) if _UNSAFE.search(text) else text


def to_sql_texts(texts: Sequence[str | None]) -> Sequence[str | None]:
    """Applies `to_sql_text` to each text; None stays None."""
    joined = "".join([text for text in texts if text])
    if joined.isascii() and "\\" not in joined and "\0" not in joined:
        return texts
    return [None if text is None else to_sql_text(text) for text in texts]


def from_sql_text(text: str) -> str:
    """The inverse of `to_sql_text`."""
    return _ESCAPED.sub(_unescape, text) if "\\" in text else text


def escape_surrogates(json_text: str) -> str:
    """Writes lone surrogates in JSON text as \\uXXXX, so that it can be encoded as UTF-8."""
    if json_text.isascii() or not _SURROGATE.search(json_text):
        return json_text
    return _SURROGATE.sub(_escape, json_text)


def key_hash(path: str, dv_id: str) -> bytes:
    """The hash of a file key, used in unique indexes, where long paths do not fit."""
    return hashlib.sha256(f"{path}\0{dv_id}".encode("utf-8", "surrogatepass")).digest()


def key_hashes(paths: Iterable[str], dv_ids: Iterable[str]) -> list[bytes]:
    """Computes `key_hash` of each pair, inlined: a million calls add up."""
    sha256 = hashlib.sha256
    return [
        sha256(f"{path}\0{dv_id}".encode("utf-8", "surrogatepass")).digest()
        for path, dv_id in zip(paths, dv_ids, strict=True)
    ]
