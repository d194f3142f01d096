"""Replay, and the Arrow rows of its files."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.log.protocol.actions import Action, AddFile, DeletionVector, DomainMetadata, RemoveFile
from deltalakedb.log.protocol.rows import adds_from_batch, adds_to_batch, removes_from_batch, removes_to_batch
from deltalakedb.log.protocol.snapshot import replay
from deltalakedb.log.protocol.txnlog import FILES_SCHEMA, TOMBSTONES_SCHEMA
from tests.unit.log.strategies import actions, adds, removes

few_vectors = st.sampled_from([None, DeletionVector("u", "a", 1, 1), DeletionVector("u", "b", 1, 2)])
few_adds = st.builds(
    AddFile,
    st.sampled_from("xyz"),
    st.just({}),
    st.integers(0, 9),
    st.just(1),
    st.booleans(),
    deletion_vector=few_vectors,
)
few_removes = st.builds(RemoveFile, st.sampled_from("xyz"), st.booleans(), deletion_vector=few_vectors)
histories = st.lists(st.one_of(few_adds, few_removes, actions), max_size=25)


@given(histories, st.integers(0, 25))
def test_replay_in_parts_is_replay_of_the_whole(history: list[Action], cut: int) -> None:
    prefix = replay(history[:cut])
    before = prefix.copy()
    assert replay(history[cut:], prefix) == replay(history)
    assert prefix == before, "the state replay starts from is left as it is"


@given(histories)
def test_a_file_key_is_live_or_removed_by_its_last_action(history: list[Action]) -> None:
    state = replay(history)
    last = {action.key: action for action in history if isinstance(action, AddFile | RemoveFile)}
    assert state.files == {key: action for key, action in last.items() if isinstance(action, AddFile)}
    assert state.tombstones == {key: action for key, action in last.items() if isinstance(action, RemoveFile)}


def test_a_removed_domain_is_gone() -> None:
    state = replay([DomainMetadata("d", "1", False), DomainMetadata("e", "1", False), DomainMetadata("d", "", True)])
    assert list(state.domain_metadata) == ["e"]


@given(st.lists(adds, max_size=4), st.lists(removes, max_size=4))
def test_file_actions_survive_arrow(some_adds: list[AddFile], some_removes: list[RemoveFile]) -> None:
    batch, tombstones = adds_to_batch(some_adds), removes_to_batch(some_removes)
    assert (batch.schema, tombstones.schema) == (FILES_SCHEMA, TOMBSTONES_SCHEMA)
    assert list(adds_from_batch(batch)) == some_adds
    assert list(removes_from_batch(tombstones)) == some_removes
