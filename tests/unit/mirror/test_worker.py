"""The threads behind the mirror: tasks by key, each at its time, a key never twice at once, and none in a fork."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from deltalakedb.mirror.worker import Worker


def _wait(event: threading.Event) -> None:
    event.wait(10)


@pytest.fixture
def worker() -> Worker:
    return Worker("test", max_threads=2, idle_seconds=0.2)


def test_tasks_under_one_key_are_one_and_come_at_the_earlier_time(worker: Worker) -> None:
    runs: list[str] = []
    worker.schedule(("me", 1), lambda: runs.append("late"), 30.0)
    worker.schedule(("me", 1), lambda: runs.append("early"), 0.0)
    worker.schedule(("me", 1), lambda: runs.append("later still"), 30.0)
    assert worker.finish("me", 10.0)
    assert "early" in runs
    assert "late" not in runs


def test_a_key_is_never_worked_on_by_two_threads(worker: Worker) -> None:
    at_once, most, done = 0, 0, 0
    lock = threading.Lock()

    def run() -> None:
        nonlocal at_once, most, done
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.02)
        with lock:
            at_once -= 1
            done += 1

    for _ in range(5):
        worker.schedule(("me", "same"), run)
        time.sleep(0.01)
    assert worker.finish("me", 10.0)
    assert most == 1
    assert done >= 2


def test_a_slow_task_does_not_keep_another_key_waiting(worker: Worker) -> None:
    release, other = threading.Event(), threading.Event()
    worker.schedule(("me", "slow"), lambda: _wait(release))
    worker.schedule(("me", "quick"), other.set)
    assert other.wait(30)
    release.set()
    assert worker.finish("me", 10.0)


def test_a_task_that_raises_does_not_end_the_thread(worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("no")

    done = threading.Event()
    worker.schedule(("me", 1), fail)
    assert worker.finish("me", 10.0)
    worker.schedule(("me", 2), done.set)
    assert done.wait(30)
    assert "a task of the mirror failed" in caplog.text


def test_finishing_waits_for_what_is_due_soon_and_not_for_what_is_due_much_later(worker: Worker) -> None:
    runs: list[int] = []
    worker.schedule(("me", 1), lambda: runs.append(1), 0.3)
    worker.schedule(("me", 2), lambda: runs.append(2), 60.0)
    worker.schedule(("other", 3), lambda: time.sleep(5), 0.0)
    started = time.monotonic()
    assert worker.finish("me", 10.0)
    assert time.monotonic() - started < 3
    assert runs == [1]
    assert worker.finish("me", 10.0, within_seconds=120.0)
    assert runs == [1, 2]


def test_finishing_gives_up_when_its_time_is_over(worker: Worker) -> None:
    release = threading.Event()
    worker.schedule(("me", 1), lambda: _wait(release))
    assert not worker.finish("me", 0.1)
    release.set()
    assert worker.finish("me", 10.0)


def test_what_is_dropped_does_not_run(worker: Worker) -> None:
    runs: list[int] = []
    worker.schedule(("me", 1), lambda: runs.append(1), 0.2)
    worker.drop("me")
    time.sleep(0.4)
    assert runs == []
    assert worker.finish("me", 1.0)


def test_threads_that_have_nothing_to_do_end_and_come_back() -> None:
    worker = Worker("alone", max_threads=2, idle_seconds=0.1)
    worker.schedule(("me", 1), lambda: None)
    assert worker.finish("me", 30.0)
    deadline = time.monotonic() + 30
    while any(thread.name.startswith("alone-") for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    done = threading.Event()
    worker.schedule(("me", 2), done.set)
    assert done.wait(30)


def test_a_child_of_a_fork_has_threads_of_its_own(worker: Worker) -> None:
    worker.schedule(("me", 1), lambda: None)
    assert worker.finish("me", 5.0)
    child = os.fork()
    if child == 0:
        done = threading.Event()
        worker.schedule(("me", 2), done.set)
        os._exit(0 if done.wait(5) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


AT_EXIT = """
import time
from deltalakedb.mirror import worker

class Owner:
    def close(self, timeout_seconds=5.0):
        print("closed", worker.mirroring.finish(self, timeout_seconds))
    def after_fork(self):
        pass

owner = Owner()
worker.close_at_exit(owner)
worker.mirroring.schedule((owner, 1), lambda: print("done"), 0.2)
"""


def test_a_process_that_ends_finishes_its_tasks_first() -> None:
    ended = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.split() == ["done", "closed", "True"]
