"""A hook of the wheel's build: a wheel without the bridge's jar would fail only at the user's, so it is not built."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class JarHook(BuildHookInterface[Any]):
    """Looks for the jar before a wheel is packed; an editable install gets it from `make setup` afterwards."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        jar = Path(self.root) / "src" / "deltalakedb" / "spark" / "jars" / "deltalakedb-bridge.jar"
        if version != "editable" and not jar.is_file():
            raise RuntimeError(f"{jar} is missing: run `make setup` (it needs a JDK 17) before the wheel is built")
