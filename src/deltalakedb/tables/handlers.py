"""ReadOnlyHandler: the files of one table as a PyArrow file system."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystemHandler, FileType


class ReadOnlyHandler(FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """A fixed set of files, opened by a function; read-only."""

    def __init__(self, location: str, open_file: Callable[[str], pa.NativeFile], sizes: Mapping[str, int]) -> None:
        self.location = location
        self._open = open_file
        self._sizes = sizes

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = object.__hash__

    def get_type_name(self) -> str:
        return "deltalakedb"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        return [
            FileInfo(path, FileType.File) if path in self._sizes else FileInfo(path, FileType.NotFound)
            for path in paths
        ]

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        prefix = f"{selector.base_dir.rstrip('/')}/" if selector.base_dir else ""
        return [FileInfo(path, FileType.File) for path in self._sizes if path.startswith(prefix)]

    def open_input_file(self, path: str) -> pa.NativeFile:
        return self._open(path)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self._open(path)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(f"the files of {self.location} are only read here; write through the table")

    copy_file = create_dir = delete_dir = delete_dir_contents = delete_file = delete_root_dir_contents = _refuse
    move = open_append_stream = open_output_stream = _refuse
