"""Whether a store refuses to overwrite is proven by putting an object twice; what does not is not written to."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pyarrow as pa
import pytest

import deltalakedb as dl
from deltalakedb.exceptions import CommitFailedError, MirrorError
from deltalakedb.files import FileTxnLogWriter
from deltalakedb.storage.conditional_put import PROBE_PREFIX, PutSupport, find_put_support
from deltalakedb.storage.interface import Puts
from deltalakedb.storage.location import parse_location
from tests.faults.s3_proxy import Conditions, FaultyS3, faulty_s3
from tests.fixtures.s3 import S3, SECRET_ACCESS_KEY

REASONS = {"ignored": "it overwrites", "501": "with 501", "400": "with 400"}


@contextmanager
def behind(s3: S3, conditions: Conditions = "honoured") -> Iterator[tuple[FaultyS3, dict[str, str]]]:
    with faulty_s3(s3.endpoint_url, conditions=conditions) as proxy:
        yield proxy, {**s3.storage_options, "AWS_ENDPOINT_URL": proxy.endpoint_url}


def ask(s3: S3, options: dict[str, str], seconds: float = 10) -> PutSupport:
    return find_put_support(parse_location(s3.uri("lake")), options, timeout_seconds=seconds)


@pytest.fixture
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)


def test_a_store_that_refuses_the_second_put_is_asked_once_and_left_as_it_was(s3: S3) -> None:
    with behind(s3) as (proxy, options):
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: ask(s3, options), range(4)))
        assert [one.supported for one in found] == [True] * 4
        assert [put.status for put in proxy.puts] == [200, 412]
        assert all(PROBE_PREFIX in put.key for put in proxy.puts)
    assert s3.list_keys() == []


@pytest.mark.parametrize("conditions", REASONS)
def test_a_store_that_does_not_refuse_is_found_out_and_left_as_it_was(s3: S3, conditions: Conditions) -> None:
    with behind(s3, conditions) as (proxy, options):
        found = ask(s3, options)
        assert found.supported is False
        assert REASONS[conditions] in found.problem
        assert proxy.endpoint_url in found.problem
    assert s3.list_keys() == []


def test_a_store_that_cannot_be_written_to_is_unknown_until_it_can(s3: S3) -> None:
    with behind(s3) as (proxy, options):
        proxy.read_only = True
        assert ask(s3, options).supported is None
        assert find_put_support(
            parse_location(s3.uri()), options, timeout_seconds=10, asks_again=False
        ).supported is None  # fmt: skip
        proxy.read_only = False
        assert ask(s3, options).supported is True


def test_a_store_that_stumbles_is_asked_again(s3: S3) -> None:
    failing = ["503", "cut answer", None, "500"]

    def choose(method: str, _key: str) -> object:
        return failing.pop(0) if method == "PUT" and failing else None

    with faulty_s3(s3.endpoint_url, choose) as proxy:  # type: ignore[arg-type]
        options = {**s3.storage_options, "AWS_ENDPOINT_URL": proxy.endpoint_url}
        assert ask(s3, options).supported is True


def test_an_endpoint_that_is_gone_is_unknown_and_no_secret_is_told(s3: S3) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    found = ask(s3, {**s3.storage_options, "AWS_ENDPOINT_URL": nobody}, seconds=0.5)
    assert found.supported is None
    assert found.reason
    assert SECRET_ACCESS_KEY not in repr(found)


def test_an_option_that_turns_conditions_off_is_believed(s3: S3) -> None:
    found = ask(s3, {**s3.storage_options, "aws_conditional_put": "disabled"})
    assert (found.supported, "conditional_put" in found.reason) == (False, True)


@pytest.mark.usefixtures("no_settings_from_outside")
@pytest.mark.parametrize(
    ("location", "options"),
    [
        ("s3://bucket/lake", {"AWS_REGION": "eu-west-1"}),
        ("s3://bucket/lake", {"AWS_ENDPOINT_URL": "https://s3.eu-west-1.amazonaws.com"}),
        ("gs://bucket/lake", {}),
        ("abfss://c@account.dfs.core.windows.net/lake", {}),
        ("memory://x/lake", {}),
    ],
)
def test_the_clouds_own_stores_are_not_asked(location: str, options: dict[str, str]) -> None:
    assert find_put_support(parse_location(location), options, timeout_seconds=0).supported is True


@pytest.mark.parametrize("conditions", REASONS)
def test_without_a_lock_nothing_is_put_where_it_could_overwrite(s3: S3, conditions: Conditions) -> None:
    with behind(s3, conditions) as (proxy, options):
        writer = FileTxnLogWriter(s3.uri("t"), options, table="t")
        with pytest.raises(MirrorError, match=r"does not refuse to overwrite .* keep the table in a catalog") as raised:
            writer.put_commit(0, b"x", modified_ms=1)
        assert proxy.endpoint_url in str(raised.value)
        assert not raised.value.uncertain
    assert s3.list_keys() == []


@pytest.mark.parametrize("conditions", REASONS)
def test_files_that_are_the_same_whoever_writes_them_need_no_lock(s3: S3, conditions: Conditions) -> None:
    with behind(s3, conditions) as (_, options):
        writer = FileTxnLogWriter(s3.uri("t"), options, table="t")
        assert writer.put_compacted(0, 1, b"x") == "written"
        assert writer.put_compacted(0, 1, b"y") == "exists"
    (key,) = s3.list_keys()
    assert s3.client.get_object(Bucket=s3.bucket, Key=key)["Body"].read() == b"x"


def test_a_store_that_must_refuse_and_does_not_is_not_written_to_even_with_a_lock(s3: S3) -> None:
    class Never:
        def hold(self, timeout_seconds: float) -> None:
            raise AssertionError(f"not to be taken, in {timeout_seconds} seconds or ever")

    with behind(s3, "ignored") as (_, options):
        puts = Puts("required", Never())  # type: ignore[arg-type]
        writer = FileTxnLogWriter(s3.uri("t"), options, table="t", puts=puts)
        with pytest.raises(MirrorError, match=r"mirror\.conditional_put"):
            writer.put_commit(0, b"x", modified_ms=1)


@pytest.mark.parametrize("conditions", REASONS)
def test_a_plain_path_is_refused_with_the_reason_and_no_file_is_left(s3: S3, conditions: Conditions) -> None:
    rows = pa.table({"id": [1]})
    with behind(s3, conditions) as (proxy, options):
        with pytest.raises(CommitFailedError, match=r"nothing was committed: .*put-if-absent.*catalog") as raised:
            dl.write_deltalake(s3.uri("lake/t"), rows, storage_options=options)
        assert proxy.endpoint_url in str(raised.value)
    assert s3.list_keys() == []
