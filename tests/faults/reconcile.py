"""Brings `_delta_log` level the way an operator does: `dl mirror once`, as a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

from tests.faults.conftest import Place

DL = Path(sys.executable).with_name("dl")


def bring_level(place: Place, environment: dict[str, str] | None = None) -> str:
    """Run the reconciler once; it must end well."""
    line = [str(DL), "mirror", "once", "--catalog", place.catalog]
    settings = {**os.environ, **(environment or {})}
    ended = subprocess.run(line, env=settings, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
