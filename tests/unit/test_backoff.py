"""The waits between attempts."""

from deltalakedb.runtime.backoff import Backoff


def test_waits_double_up_to_the_longest_and_are_a_random_part_of_that() -> None:
    backoff = Backoff(0.1, 1.0)
    for failures, full in enumerate([0.1, 0.2, 0.4, 0.8, 1.0, 1.0]):
        waits = [backoff.seconds(failures) for _ in range(50)]
        assert min(waits) >= full * 0.5
        assert max(waits) <= full * 1.0001
        assert len(set(waits)) > 1


def test_any_number_of_failures_has_a_wait() -> None:
    assert 5.0 <= Backoff(1.0, 10.0).seconds(1_000_000) <= 10.0


def test_the_random_part_can_be_chosen() -> None:
    assert Backoff(2.0, 2.0, 1.0, 1.0).seconds() == 2.0
    assert all(1.0 <= Backoff(2.0, 2.0, 0.5, 1.5).seconds() <= 3.0 for _ in range(50))
