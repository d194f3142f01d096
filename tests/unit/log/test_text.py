"""Arbitrary strings as SQL text."""

from __future__ import annotations

import hashlib

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.log.protocol.codec import from_sql_text, key_hash, to_sql_text

everything = st.text(st.characters(exclude_categories=()) | st.sampled_from("\\u0d8f\0\ud800"))


@given(everything)
def test_any_string_survives_as_sql_text(text: str) -> None:
    stored = to_sql_text(text)
    assert "\0" not in stored
    stored.encode()
    assert pa.array([stored])[0].as_py() == stored
    assert from_sql_text(stored) == text


@given(everything, everything)
def test_different_strings_have_different_sql_texts(left: str, right: str) -> None:
    assert (to_sql_text(left) == to_sql_text(right)) == (left == right)


def test_ordinary_text_is_not_copied() -> None:
    text = "part-0001 ü 漢字.parquet"
    assert to_sql_text(text) is text
    assert from_sql_text(text) is text


def test_unsafe_characters_are_spelled_out() -> None:
    assert to_sql_text("a\\b\0\ud800") == "a\\\\b\\u0000\\ud800"


def test_a_key_hash_tells_path_and_vector_apart() -> None:
    assert key_hash("a", "b") == hashlib.sha256(b"a\0b").digest()
    assert len({key_hash("a", "b"), key_hash("ab", ""), key_hash("", "ab"), key_hash("\ud800", "")}) == 4
