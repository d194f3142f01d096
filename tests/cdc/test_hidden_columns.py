"""What is masked or left out stays so in new copies, whatever the source has renamed since."""

import threading
from typing import Any

import pytest

from deltalakedb.cdc.copy.resnapshot import resnapshot
from deltalakedb.cdc.run.choice_changes import apply_choice
from deltalakedb.cdc.run.configured import load_settings
from deltalakedb.cdc.run.report import CaptureReport
from deltalakedb.cdc.run.runner import Runner
from deltalakedb.cdc.settings import CaptureSettings
from tests.cdc.conftest import Lake, Source
from tests.cdc.local_jobs import LocalJobs

SECRET = "somebody@example.org"
HASH = {"mask": {"email": "hash"}}
KEY = "0123456789abcdef"


def create_people(source: Source) -> None:
    source.run(
        "create table people (id int primary key, email text, city text)",
        "create publication shop for all tables",
        f"insert into people values (1, '{SECRET}', 'Bern')",
    )


def settings_of(source: Source, rule: dict[str, Any] | None, **more: Any) -> CaptureSettings:
    rules = [] if rule is None else [rule]
    return load_settings(
        {"source": source.dsn, "publication": "shop", "namespace": "lake", "mask_key": KEY, "rules": rules, **more}
    )


def capture(lake: Lake, settings: CaptureSettings) -> CaptureReport:
    jobs: Any = LocalJobs()
    return Runner(lake.catalog, settings, jobs, threading.Event()).run(once=True)


def current(lake: Lake, table: str = "lake.people") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lake.catalog.table(table).to_pyarrow_table().to_pylist()
    return rows


def is_shown(lake: Lake) -> bool:
    """Whether some table of the lake has the value, in any version."""
    for name in lake.catalog.tables():
        for version in range(lake.catalog.table(name).version() + 1):
            if SECRET in str(lake.catalog.table(name, version=version).to_pyarrow_table().to_pylist()):
                return True
    return False


@pytest.mark.parametrize("rule", [HASH, {"exclude_columns": ["email"]}], ids=["masked", "left out"])
@pytest.mark.parametrize("mapped", [False, True], ids=["stops", "follows"])
def test_a_renamed_column_stays_hidden_in_every_new_copy(
    source: Source, lake: Lake, rule: dict[str, Any], mapped: bool
) -> None:
    create_people(source)
    settings = settings_of(source, rule, column_mapping=mapped)
    capture(lake, settings)
    source.run("alter table people rename email to contact", f"insert into people values (2, '{SECRET}', 'Chur')")
    capture(lake, settings)
    for _ in range(2):  # the second copy knows the new name alone
        resnapshot(lake.catalog, settings, ["people"])
        assert capture(lake, settings).copied == ("public.people",)
    assert len(current(lake)) == 2
    assert not is_shown(lake)


def test_a_copy_by_policy_hides_a_renamed_column(source: Source, lake: Lake) -> None:
    create_people(source)
    settings = settings_of(source, HASH, resnapshot="tables")
    capture(lake, settings)
    source.run("alter table people rename email to contact", f"insert into people values (2, '{SECRET}', 'Chur')")
    assert capture(lake, settings).copied == ("public.people",)
    assert len(current(lake)) == 2
    assert not is_shown(lake)


def test_columns_that_swap_their_names_are_both_hidden(source: Source, lake: Lake) -> None:
    create_people(source)
    settings = settings_of(source, HASH)
    capture(lake, settings)
    swap = ("rename email to other", "rename city to email", "rename other to city")
    source.run(*(f"alter table people {one}" for one in swap))
    resnapshot(lake.catalog, settings, ["people"])
    capture(lake, settings)
    (row,) = current(lake)
    assert len(row["city"]) == len(row["email"]) == 64
    assert not is_shown(lake)


def test_settings_without_the_mask_lift_it_from_a_renamed_column_too(source: Source, lake: Lake) -> None:
    create_people(source)
    capture(lake, settings_of(source, HASH, column_mapping=True))
    source.run("alter table people rename email to contact")
    capture(lake, settings_of(source, HASH, column_mapping=True))
    other = settings_of(source, HASH | {"cluster_by": ["city"]}, column_mapping=True)
    apply_choice(lake.catalog, other)
    capture(lake, other)
    assert not is_shown(lake)
    plain = settings_of(source, None, column_mapping=True)
    plan, _ = apply_choice(lake.catalog, plain)
    assert "the column contact: its mask was hash and is none" in plan.steps[0].why
    capture(lake, plain)
    assert [row["contact"] for row in current(lake)] == [SECRET]


def test_a_renamed_table_is_not_captured_without_the_masks_it_had(source: Source, lake: Lake) -> None:
    create_people(source)
    capture(lake, settings_of(source, {"tables": ["people"], **HASH}))
    source.run("alter table people rename to persons", f"insert into persons values (2, '{SECRET}', 'Chur')")
    told = capture(lake, settings_of(source, {"tables": ["people"], **HASH})).stopped
    assert "it was called public.people before, and the settings mask or leave out email" in told["public.persons"]
    assert not is_shown(lake)
    both = settings_of(source, {"tables": ["people", "persons"], **HASH})
    apply_choice(lake.catalog, both)
    resnapshot(lake.catalog, both, ["persons"])
    assert capture(lake, both).copied == ("public.persons",)
    assert len(current(lake, "lake.persons")) == 2
    assert not is_shown(lake)
