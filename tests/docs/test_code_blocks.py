"""The code in README.md and docs/ is run as it stands, block after block, in an empty folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.sizes import every
from tests.fixtures.spark import submit_arguments

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "tests" / "README.md", *(ROOT / "docs").glob("*.md")]
)
STARTS_SPARK = ("dls.session(", "cdc.run(")
MAKE = re.compile(r"^make ([a-z-]+)", re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def code_of(page: Path) -> str:
    """The Python of a page; `py` is what wants more than the package itself."""
    return "\n".join([*blocks(page, "python"), *blocks(page, "py")])


def starts_spark(page: Path) -> bool:
    return any(call in code_of(page) for call in STARTS_SPARK)


def run_in(folder: Path, script: str, *command: str) -> None:
    """Run with our `dl` and this interpreter first, and no settings of the developer's own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DL_")}
    # Pages leave most settings as they are; for tiny tables tasks are what costs.
    if any(call in script for call in STARTS_SPARK):
        environment |= submit_arguments(folder)
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run([*command, script], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"


def run_commands(page: Path, folder: Path) -> None:
    commands = [block for block in blocks(page, "sh") if not MAKE.search(block)]
    if commands:
        run_in(folder, "set -e\n" + "\n".join(commands), "bash", "-c")


@pytest.mark.parametrize(
    "page",
    every(3, [page for page in PAGES if code_of(page) and not starts_spark(page)]),
    ids=lambda page: page.name,
)
def test_the_examples_run_as_they_stand(page: Path, tmp_path: Path) -> None:
    """The Python of a page first, then its `dl` commands on what that left behind."""
    run_in(tmp_path, code_of(page), sys.executable, "-c")
    run_commands(page, tmp_path)


PAGE_AFTER_PAGE = """
import os
from pyspark.sql import SparkSession

for folder, source in {pages!r}:
    os.chdir(folder)
    exec(compile(source, folder, "exec"), {{"__name__": "__main__"}})
    if (session := SparkSession.getActiveSession()) is not None:
        session.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
def test_the_examples_with_spark_run_as_they_stand(tmp_path: Path) -> None:
    """Each page starts a Spark of its own, all in one process: a JVM is what costs.

    It stays in the folder of the first page, so that is the one whose files Spark reads by relative paths.
    """
    with_spark = sorted(filter(starts_spark, PAGES), key=lambda page: page.name != "spark.md")
    pages = {tmp_path / page.stem: page for page in with_spark}
    for folder in pages:
        folder.mkdir()
    told = [(str(folder), code_of(page)) for folder, page in pages.items()]
    run_in(tmp_path, PAGE_AFTER_PAGE.format(pages=told), sys.executable, "-c")
    for folder, page in pages.items():
        run_commands(page, folder)


def test_the_readme_has_an_example_of_about_twenty_lines() -> None:
    (example,) = blocks(ROOT / "README.md", "python")
    assert 10 <= len([line for line in example.splitlines() if line.strip()]) <= 22


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_make_target_and_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {target for block in blocks(page, "sh") for target in MAKE.findall(block)}
    named |= set(re.findall(r"`make ([a-z-]+)`", text))
    assert named <= targets
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (page.parent / link).exists(), link
    for path in re.findall(r"`((?:src|tests|docs|bench|examples)/[\w./-]+\.\w+)`", text):
        assert (ROOT / path).exists(), path


def test_the_demo_runs() -> None:
    run_in(ROOT, str(ROOT / "examples" / "demo.py"), sys.executable)
