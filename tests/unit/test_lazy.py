"""Cached properties are made once, and hold no lock that a fork would copy."""

import threading

from deltalakedb.runtime.lazy import cached_property


class Slow:
    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.times = 0

    @cached_property
    def value(self) -> int:
        self.times += 1
        self.begun.set()
        assert self.go_on.wait(30)
        return self.times


def test_a_value_is_made_once() -> None:
    slow = Slow()
    slow.go_on.set()
    assert (slow.value, slow.value, slow.times) == (1, 1, 1)


def test_a_value_that_is_being_made_keeps_no_other_instance_waiting() -> None:
    first, second = Slow(), Slow()
    second.go_on.set()
    thread = threading.Thread(target=lambda: first.value, daemon=True)
    thread.start()
    assert first.begun.wait(30)
    answers: list[int] = []
    other = threading.Thread(target=lambda: answers.append(second.value), daemon=True)
    other.start()
    other.join(10)
    first.go_on.set()
    thread.join(30)
    assert answers == [1]
