"""The package's metadata: its version has one source, `deltalakedb.__version__`."""

import re
import tomllib
from pathlib import Path

from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

import deltalakedb

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_a_build_takes_its_version_from_the_package() -> None:
    metadata = ProjectMetadata(str(ROOT), PluginManager())
    assert metadata.version == deltalakedb.__version__
    assert "version" not in PYPROJECT["project"]


def test_no_other_file_states_the_version() -> None:
    version = re.compile(rf"(?<![\w.]){re.escape(deltalakedb.__version__)}(?![\w.])")
    files = [*ROOT.glob("*.md"), *ROOT.glob("*.toml"), *(ROOT / "docs").glob("*.md")]
    files += [*(ROOT / "src").rglob("*.py"), *(ROOT / "bridge").rglob("*.py"), *(ROOT / "bridge").rglob("*.java")]
    places = [str(file.relative_to(ROOT)) for file in files if version.search(file.read_text(encoding="utf-8"))]
    assert places == ["src/deltalakedb/runtime/version.py"]


def test_the_hooks_of_pre_commit_are_the_checks_of_make_check() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipes = re.findall(r"^(?:check|docs): .*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    checks = re.findall(r"\$\(BIN\)/(.+)", "".join(recipes))
    hooks = re.findall(r"entry: \.venv/bin/(.+)", (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert len(checks) == 4
    assert sorted(hooks) == sorted(checks)
