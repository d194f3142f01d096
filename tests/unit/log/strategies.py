"""Random JSON texts and actions, with everything a log may hold: NUL, lone surrogates, numbers no double can hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from deltalakedb.log.protocol.actions import (
    Action,
    AddCDCFile,
    AddFile,
    AppTransaction,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    UnknownAction,
)


def _no_accidental_pair(text: str) -> bool:
    """Two escaped surrogates side by side are one character in JSON; such a string cannot come out of a parser."""
    return all(not ("\ud800" <= a <= "\udbff" and "\udc00" <= b <= "\udfff") for a, b in pairwise(text))


any_text = st.text(st.characters(exclude_categories=()), max_size=12).filter(_no_accidental_pair)
plain_paths = st.text(st.characters(codec="utf-8", exclude_characters="/%.:\\"), min_size=1, max_size=8)
paths = st.one_of(plain_paths, plain_paths.map(lambda name: f"p=%2520{name}/{name}.parquet"), any_text.filter(len))
longs = st.integers(-(2**63), 2**63 - 1)
maps = st.dictionaries(any_text, st.none() | any_text, max_size=3)
json_numbers = st.sampled_from(
    ["0", "-0", "1.00", "1e400", "-1E-7", "123456789012345678901234567890", "0.1000", "-9223372036854775809"]
)


def json_texts() -> st.SearchStrategy[str]:
    """JSON values as text, since a parsed value forgets how its numbers were spelled."""
    scalars = (
        st.sampled_from(["null", "true", "false", '"\\u0000"', '"\\ud800x"', '"ü\\n"'])
        | json_numbers
        | any_text.map(json.dumps)
    )
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=3).map(lambda items: "[ " + ", ".join(items) + "]")
            | st.dictionaries(any_text, inner, max_size=3).map(object_text)
        ),
        max_leaves=6,
    )


def object_text(members: Mapping[str, str]) -> str:
    return "{" + " ,".join(f"{json.dumps(name)}: {text}" for name, text in members.items()) + "}"


def parse_exactly(text: str) -> Any:
    """JSON parsed so that numbers compare by their spelling."""
    return json.loads(text, parse_int=lambda number: ("number", number), parse_float=lambda number: ("number", number))


def _optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


vectors = st.builds(
    DeletionVector,
    storage_type=st.sampled_from("uip"),
    path_or_inline_dv=any_text,
    size_in_bytes=longs,
    cardinality=longs,
    offset=_optional(longs),
)
adds = st.builds(
    AddFile,
    path=paths,
    partition_values=maps,
    size=longs,
    modification_time=longs,
    data_change=st.booleans(),
    stats=_optional(any_text),
    tags=_optional(maps),
    deletion_vector=_optional(vectors),
    base_row_id=_optional(longs),
    default_row_commit_version=_optional(longs),
    clustering_provider=_optional(any_text),
)
removes = st.builds(
    RemoveFile,
    path=paths,
    data_change=st.booleans(),
    deletion_timestamp=_optional(longs),
    extended_file_metadata=_optional(st.booleans()),
    partition_values=_optional(maps),
    size=_optional(longs),
    stats=_optional(any_text),
    tags=_optional(maps),
    deletion_vector=_optional(vectors),
    base_row_id=_optional(longs),
    default_row_commit_version=_optional(longs),
)
metadata = st.builds(
    Metadata,
    id=any_text,
    format=st.builds(Format, provider=any_text, options=maps),
    schema_string=any_text,
    partition_columns=st.lists(any_text, max_size=3).map(tuple),
    configuration=maps,
    name=_optional(any_text),
    description=_optional(any_text),
    created_time=_optional(longs),
)
_features = _optional(st.lists(any_text, max_size=3).map(tuple))
protocols = st.builds(
    Protocol, min_reader_version=longs, min_writer_version=longs, reader_features=_features, writer_features=_features
)
app_transactions = st.builds(AppTransaction, app_id=any_text, version=longs, last_updated=_optional(longs))
domains = st.builds(DomainMetadata, domain=st.sampled_from("abc"), configuration=any_text, removed=st.booleans())
cdc_files = st.builds(
    AddCDCFile, path=paths, partition_values=maps, size=longs, data_change=st.booleans(), tags=_optional(maps)
)
commit_infos = st.dictionaries(any_text, json_texts(), max_size=4).map(object_text).map(CommitInfo)
unknown_actions = st.builds(UnknownAction, kind=any_text.map(lambda kind: f"x{kind}"), text=json_texts())

actions: st.SearchStrategy[Action] = st.one_of(
    adds, removes, cdc_files, metadata, protocols, app_transactions, domains, commit_infos, unknown_actions
)
