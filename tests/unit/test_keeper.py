"""What the tests start for long ends with them, also when they are killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
STARTS = """
import sys, time
from pathlib import Path
from tests.fixtures.keeper import Kept

folder = Path(sys.argv[1])
Kept(["sh", "-c", f"sleep 600 & echo $! > {folder}/pid; wait"], folder / "log")
time.sleep(600)
"""


def test_a_command_and_its_children_are_gone_when_the_one_who_started_it_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTS, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    test = subprocess.Popen(command, env=environment)
    deadline = time.monotonic() + 60
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child = Path("/proc") / (tmp_path / "pid").read_text().strip()
    assert child.exists()
    test.send_signal(signal.SIGKILL)
    test.wait()
    while is_alive(child):
        assert time.monotonic() < deadline, "it outlived the test"
        time.sleep(0.02)


def is_alive(process: Path) -> bool:
    try:
        return "(zombie)" not in (process / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
