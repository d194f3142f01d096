"""Actions as JSON, both ways, and what makes a commit valid."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.exceptions import MalformedLogError
from deltalakedb.log.protocol.actions import (
    Action,
    AddFile,
    AppTransaction,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    UnknownAction,
)
from deltalakedb.log.protocol.codec import escape_surrogates
from deltalakedb.log.protocol.commit import (
    Commit,
    CommitChecker,
    iter_actions,
    parse_action,
    render_action,
    render_line,
)
from deltalakedb.log.schema.types import parse_schema
from tests.unit.log.strategies import actions, adds, any_text, json_texts, object_text, parse_exactly

ADD = '{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":2,"dataChange":true}}'
KNOWN: dict[str, dict[str, str]] = {
    "add": {
        "path": '"f.parquet"',
        "partitionValues": '{"p": null, "q": "x"}',
        "size": "9223372036854775807",
        "modificationTime": "1",
        "dataChange": "true",
        "stats": '"{\\"numRecords\\":1}"',
        "tags": '{"a": "b"}',
        "deletionVector": '{"storageType":"u","pathOrInlineDv":"ab","offset":1,"sizeInBytes":2,"cardinality":3}',
        "baseRowId": "7",
        "defaultRowCommitVersion": "8",
        "clusteringProvider": '"liquid"',
    },
    "remove": {"path": '"f.parquet"', "deletionTimestamp": "1", "dataChange": "false", "extendedFileMetadata": "true"},
    "cdc": {"path": '"_change_data/f"', "partitionValues": "{}", "size": "1", "dataChange": "false"},
    "metaData": {
        "id": '"i"',
        "format": '{"provider": "parquet", "options": {}}',
        "schemaString": '"{}"',
        "partitionColumns": '["p"]',
        "configuration": '{"delta.appendOnly": "true"}',
        "createdTime": "5",
    },
    "protocol": {"minReaderVersion": "3", "minWriterVersion": "7", "readerFeatures": "[]", "writerFeatures": '["x"]'},
    "txn": {"appId": '"app"', "version": "3", "lastUpdated": "1"},
    "domainMetadata": {"domain": '"d"', "configuration": '"{}"', "removed": "false"},
    "sidecar": {"path": '"s"', "sizeInBytes": "1", "modificationTime": "2", "tags": "null"},
}
OPTIONAL = {"stats", "tags", "deletionVector", "baseRowId", "clusteringProvider", "deletionTimestamp", "createdTime"}


def parse(line: str | bytes) -> Action:
    return parse_action(line, where="table t, version 3, line 1")


@given(actions)
def test_an_action_survives_json(action: Action) -> None:
    line = render_action(action)
    assert "\n" not in line
    line.encode()
    read = parse(line)
    assert read == action
    assert render_action(read) == line


@given(st.data())
def test_a_line_is_rendered_as_it_was_parsed_whatever_fields_it_has(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(KNOWN)))
    members = dict(KNOWN[kind])
    for name in sorted(OPTIONAL & members.keys()):
        fate = data.draw(st.sampled_from(["kept", "null", "gone"]))
        if fate == "null":
            members[name] = "null"
        elif fate == "gone":
            del members[name]
    unknown = data.draw(st.dictionaries(any_text.map(lambda name: f"x{name}"), json_texts(), max_size=3))
    if kind == "add" and "{" in members.get("deletionVector", ""):
        members["deletionVector"] = (
            members["deletionVector"][:-1]
            + "".join(f", {json.dumps(name)} : {text}" for name, text in unknown.items())
            + "}"
        )
    both = list({**members, **unknown}.items())
    line = object_text({kind: object_text(dict(data.draw(st.permutations(both))))})
    rendered = render_action(parse(line))
    assert parse_exactly(rendered) == parse_exactly(line)
    assert parse(rendered) == parse(line)
    assert parse(line.encode()) == parse(line)


def test_unknown_fields_keep_their_numbers_to_the_last_digit() -> None:
    line = ADD.replace('"size":1', '"size":1,"x":{"big":1e400, "long":123456789012345678901,"money":1.10}')
    add = parse(line)
    assert isinstance(add, AddFile)
    assert add.extra == '{"x":{"big":1e400, "long":123456789012345678901,"money":1.10}}'
    assert '"money":1.10' in render_action(add)


def test_explicit_nulls_come_back_as_explicit_nulls() -> None:
    line = ADD.replace('"size":1', '"size":1,"tags":null,"deletionVector":null')
    add = parse(line)
    assert isinstance(add, AddFile)
    assert (add.tags, add.deletion_vector) == (None, None)
    assert json.loads(render_action(add)) == json.loads(line)
    assert '"tags":{"a":"b"}' in render_action(replace(add, tags={"a": "b"}))


def test_fields_that_spark_fills_in_are_filled_in_but_not_written_back() -> None:
    line = '{"metaData":{"id":"i","format":{"provider":"parquet"},"schemaString":"{}"}}'
    metadata = parse(line)
    assert isinstance(metadata, Metadata)
    assert (metadata.partition_columns, dict(metadata.configuration), dict(metadata.format.options)) == ((), {}, {})
    assert json.loads(render_action(metadata)) == json.loads(line)
    changed = replace(metadata, configuration={"a": "b"})
    assert '"configuration":{"a":"b"}' in render_action(changed)
    remove = parse('{"remove":{"path":"a"}}')
    assert isinstance(remove, RemoveFile)
    assert remove.data_change
    assert render_action(remove) == '{"remove":{"path":"a"}}'


def test_numbers_and_booleans_in_a_map_of_strings_are_read_as_text_and_kept_as_they_were() -> None:
    line = '{"metaData":{"id":"i","format":{"provider":"p"},"schemaString":"","configuration":{"a":true,"b":1.50}}}'
    metadata = parse(line)
    assert isinstance(metadata, Metadata)
    assert metadata.configuration == {"a": "true", "b": "1.5"}
    assert parse_exactly(render_action(metadata)) == parse_exactly(line)


def test_whole_numbers_spelled_as_floats_are_read_and_kept_as_they_were() -> None:
    line = ADD.replace('"size":1', '"size":1.0E3')
    add = parse(line)
    assert isinstance(add, AddFile)
    assert add.size == 1000
    assert '"size":1.0E3' in render_action(add)
    assert '"size":5' in render_action(replace(add, size=5))


def test_duplicate_names_mean_the_last_of_them() -> None:
    add = parse(ADD.replace('"size":1', '"size":1,"size":2,"x":1,"x":2'))
    assert isinstance(add, AddFile)
    assert (add.size, add.extra) == (2, '{"x":2}')


def test_a_file_key_is_path_and_deletion_vector() -> None:
    vector = DeletionVector("u", "ab", 10, 3, offset=4)
    assert vector.unique_id == "uab@4"
    assert replace(vector, offset=None).unique_id == "uab"
    assert AddFile("f", {}, 1, 1, True, deletion_vector=vector).key == ("f", "uab@4")
    assert RemoveFile("f", True).key == ("f", "")


def test_commit_info_is_kept_as_text_and_answers_what_is_asked_of_it() -> None:
    text = '{ "operation":"WRITE","timestamp":5,"inCommitTimestamp":6,"txnId":"t", "x":1.0}'
    info = parse(f'{{"commitInfo": {text} }}')
    assert info == CommitInfo(text)
    assert (info.operation, info.timestamp, info.in_commit_timestamp, info.txn_id) == ("WRITE", 5, 6, "t")
    assert CommitInfo('{"operation":1,"timestamp":"x"}').operation is None
    assert CommitInfo('{"timestamp":"x"}').timestamp is None


def test_an_unknown_action_is_kept_as_text_whatever_it_is() -> None:
    assert parse('{"future":[1.0, null]}') == UnknownAction("future", "[1.0, null]")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"add":{"path":"a"', "not an action"),
        (b'{"add":{"path":"\xff"}}', "not UTF-8 at byte 16"),
        ("[]", "expected '{'"),
        ("{}", "not an action"),
        ('{"add":{},"remove":{}}', "expected '}'"),
        (ADD + ADD, "follows the JSON object"),
        ('{"add":null}', "add is not an object"),
        ('{"commitInfo":[]}', "commitInfo is not an object"),
        ('{"add":{"size":1}}', "field path is missing"),
        ('{"add":{"path":null,"size":1}}', "field path is missing"),
        (ADD.replace('"size":1', '"size":"1"'), "field size is not a int"),
        (ADD.replace('"size":1', '"size":true'), "field size is not a int"),
        (ADD.replace('"size":1', '"size":9223372036854775808'), "field size does not fit 64 bits"),
        (ADD.replace('"size":1', '"size":NaN'), "NaN is not JSON"),
        (ADD.replace('"partitionValues":{}', '"partitionValues":{"a":[]}'), "something else than strings"),
        ('{"protocol":{"minReaderVersion":1,"minWriterVersion":2,"readerFeatures":[1]}}', "list of strings"),
        (ADD.replace('"size":1', '"size":1,"deletionVector":[]'), "deletionVector is not an object"),
        (ADD.replace('"size":1', '"size":1,"x":' + "[" * 100_000), "nested too deeply"),
        (ADD.replace('"size":1', '"size":1,"deltalakedb.absent":1'), "reserved"),
    ],
)
def test_a_malformed_line_is_refused_with_where_and_why(line: str | bytes, reason: str) -> None:
    with pytest.raises(MalformedLogError, match="table t, version 3, line 1") as raised:
        parse(line)
    assert reason in str(raised.value)


def test_lines_are_numbered_blank_ones_are_skipped_and_a_truncated_one_is_named() -> None:
    lines = [ADD.encode(), b"\n", b"", b'{"add":{"pa']
    found = iter_actions(lines, table="sales.orders", version=7)
    assert isinstance(next(found), AddFile)
    with pytest.raises(MalformedLogError, match=r"table sales\.orders, version 7, line 4"):
        next(found)


def _vector(name: str) -> DeletionVector:
    return DeletionVector("u", name, 1, 1)


METADATA: Any = parse('{"metaData":{"id":"i","format":{"provider":"parquet","options":{}},"schemaString":"{}"}}')


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        ((METADATA, METADATA), "more than one metaData"),
        ((Protocol(1, 2), Protocol(1, 2)), "more than one protocol"),
        ((AppTransaction("a", 1), AppTransaction("a", 2)), "more than one txn action for the application a"),
        ((DomainMetadata("d", "", False), DomainMetadata("d", "", True)), "more than one domainMetadata"),
        ((AddFile("f", {}, 1, 1, True), AddFile("f", {}, 2, 2, True)), "adds the file f twice"),
        ((AddFile("f", {}, 1, 1, True), RemoveFile("f", True)), "adds and removes the file f"),
        ((RemoveFile("f", True), AddFile("f", {}, 1, 1, True)), "adds and removes the file f"),
        ((AddFile("a/../../f", {}, 1, 1, True), Protocol(1, 2)), "leaves the table's folder"),
        ((RemoveFile("%2E%2e/f", True), Protocol(1, 2)), "leaves the table's folder"),
    ],
)
def test_a_commit_that_contradicts_itself_is_refused(pair: tuple[Action, Action], reason: str) -> None:
    lines = [render_action(action).encode() for action in pair]
    with pytest.raises(MalformedLogError, match="table t, version 3") as raised:
        list(iter_actions(lines, table="t", version=3))
    assert reason in str(raised.value)


def test_a_new_deletion_vector_may_replace_the_old_one_in_one_commit() -> None:
    checker = CommitChecker("t", 3)
    checker.see(RemoveFile("f", True, deletion_vector=_vector("a")))
    checker.see(AddFile("f", {}, 1, 1, True, deletion_vector=_vector("b")))
    checker.see(AppTransaction("a", 1))
    checker.see(AppTransaction("b", 1))


def test_a_commit_finds_its_commit_info() -> None:
    info = CommitInfo("{}")
    assert Commit(0, 1, (Protocol(1, 2), info)).commit_info == info
    assert Commit(0, 1, ()).commit_info is None


def test_raw_surrogates_in_a_str_line_are_escaped_so_that_the_text_can_be_stored() -> None:
    action = parse('{"future":"\ud800"}')
    assert action == UnknownAction("future", '"\\ud800"')
    assert escape_surrogates("plain ü") == "plain ü"


@given(st.one_of(actions, adds, adds.map(lambda add: replace(add, extra="", tags=None, deletion_vector=None))))
def test_the_short_way_to_a_line_leads_to_the_same_bytes(action: Action) -> None:
    assert render_line(action) == render_action(action).encode("utf-8", "surrogatepass")


def test_every_character_is_written_the_same_way_by_the_short_way() -> None:
    for start in range(0, 0x11000, 256):
        text = "".join(chr(code) for code in range(start, start + 256) if not 0xD800 <= code < 0xE000)
        add = AddFile(text, {"p": text, text: None}, 1, -(2**63), True, text, clustering_provider=text)
        assert render_line(add) == render_action(add).encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"size": True},
        {"size": 2**70},
        {"data_change": 1},
        {"partition_values": {"p": 1e16}},
        {"base_row_id": False},
        {"path": "\ud800"},
    ],
)
def test_what_is_unusual_takes_the_long_way(changes: dict[str, Any]) -> None:
    add = replace(AddFile("a", {}, 1, 2, True), **changes)
    assert render_line(add) == render_action(add).encode("utf-8", "surrogatepass")


def many_adds() -> list[AddFile]:
    return [AddFile(f"part-{number}.parquet", {}, 1, 2, True) for number in range(150)]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (AddFile("part-7.parquet", {}, 1, 2, True), "adds the file part-7.parquet twice"),
        (RemoveFile("part-7.parquet", True), "adds and removes the file part-7.parquet"),
        (AddFile("../x", {}, 1, 2, True), "leaves the table's folder"),
        (AddFile("%2e%2e/x", {}, 1, 2, True), "leaves the table's folder"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_wrong_action_among_many_is_found(wrong: Action, said: str, first: bool) -> None:
    many: list[Action] = [wrong, *many_adds()] if first else [*many_adds(), wrong]
    with pytest.raises(MalformedLogError, match=said):
        CommitChecker("t", 1).see_all(many)


def test_many_right_actions_are_no_trouble() -> None:
    vector = DeletionVector("u", "ab", 2, 3, 1)
    moved: list[Action] = [
        RemoveFile("part-7.parquet", True),
        AddFile("part-7.parquet", {}, 1, 2, True, deletion_vector=vector),
    ]
    rest = [add for add in many_adds() if add.path != "part-7.parquet"]
    CommitChecker("t", 1).see_all([*rest, *moved])
    CommitChecker("t", 1).see_all([*many_adds(), RemoveFile("other.parquet", True), AppTransaction("a", 1)])


def test_metadata_without_a_schema_has_no_columns_and_is_rendered_as_it_was() -> None:
    line = (
        '{"metaData":{"id":"i","format":{"provider":"parquet","options":{}},"partitionColumns":[],"configuration":{}}}'
    )
    metadata: Any = parse(line)
    assert parse_schema(metadata.schema_string).fields == ()
    assert json.loads(render_action(metadata)) == json.loads(line)
