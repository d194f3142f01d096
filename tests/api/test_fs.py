"""DeltaStorageHandler and addresses: every call on both libraries, on the same files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import deltalake.fs
import pyarrow.fs as pa_fs
import pytest

import deltalakedb as dl
import deltalakedb.fs
from tests.api.both import Both, Library


def handler(lib: Library, **arguments: Any) -> Any:
    return lib.find("fs.DeltaStorageHandler")(str(lib.folder), **arguments)


def infos(found: list[pa_fs.FileInfo]) -> list[Any]:
    shown = [[info.path, str(info.type), info.size, info.mtime is not None] for info in found]
    # The notice of a catalog (docs/from-deltalake.md) is written a moment after the commit.
    apart = ("_delta_log/", "parquet", "_dldb")
    return sorted(one for one in shown if not any(part in one[0] for part in apart))


def selected(base: str, **options: bool) -> Callable[[Library], Any]:
    return lambda lib: infos(handler(lib).get_file_info_selector(pa_fs.FileSelector(base, **options)))


def read_from(lib: Library, position: int) -> list[Any]:
    with handler(lib).open_input_file("x.txt") as file:
        return [type(file).__name__, file.size(), file.seek(position), file.read(2).decode(), file.tell(), file.mode]


def read_known(lib: Library) -> list[Any]:
    own = handler(lib, known_sizes={"x.txt": 2, "ghost.txt": 5})
    with own.open_input_file("x.txt") as file:
        return [file.size(), file.read().decode(), own.open_input_file("ghost.txt").size()]


CALLS: dict[str, Callable[[Library], Any]] = {
    "paths": lambda lib: infos(
        handler(lib).get_file_info(
            ["", "/", ".", "..", "x.txt", "/x.txt", "x.txt/", "d", "d/", "d//z.txt", "d/../x.txt", "none"]
        )
    ),
    "the root, listed": selected(""),
    "the root, with all below": selected("/", recursive=True),
    "a folder, listed": selected("d/", recursive=True),
    "a missing folder, listed": selected("none"),
    "a file, listed": selected("x.txt", allow_not_found=True),
    "read": lambda lib: read_from(lib, 1),
    "read past the end": lambda lib: read_from(lib, 9),
    "known sizes": read_known,
    "read the root": lambda lib: handler(lib).open_input_file(""),
    "read a folder": lambda lib: handler(lib).open_input_file("d"),
    "read a missing file": lambda lib: handler(lib).open_input_file("none"),
    "read a missing file of known size": lambda lib: handler(lib, known_sizes={"a": 5}).open_input_file("a").read(),
    "create a folder": lambda lib: handler(lib).create_dir("new/sub"),
    "create the root": lambda lib: handler(lib).create_dir(""),
    "delete a folder": lambda lib: handler(lib).delete_dir("d"),
    "delete a missing folder": lambda lib: handler(lib).delete_dir("none"),
    "delete a file as a folder": lambda lib: handler(lib).delete_dir("x.txt"),
    "delete the root": lambda lib: handler(lib).delete_dir("/"),
    "delete a file": lambda lib: handler(lib).delete_file("d/z.txt"),
    "delete a missing file": lambda lib: handler(lib).delete_file("none"),
    "delete a folder as a file": lambda lib: handler(lib).delete_file("d"),
    "move": lambda lib: handler(lib).move("x.txt", "new/w.txt"),
    "move a folder": lambda lib: handler(lib).move("d", "dd"),
    "move a missing file": lambda lib: handler(lib).move("none", "w.txt"),
    "append": lambda lib: handler(lib).open_append_stream("x.txt", {}),
    "normalize": lambda lib: [handler(lib).normalize_path(path) for path in ("a", "/a", "a/", "a/b", "")],
    "a small buffer": lambda lib: handler(lib, options={"max_buffer_size": "10"}).open_output_stream("o").close(),
    "no buffer size": lambda lib: handler(lib, options={"max_buffer_size": "x"}).open_output_stream("o").close(),
    "options of another type": lambda lib: handler(lib, options=3),
    "an option of another type": lambda lib: handler(lib, options={"a": 3}),
    "a size of another type": lambda lib: handler(lib, known_sizes={"a": "b"}),
    "no such folder": lambda lib: lib.find("fs.DeltaStorageHandler")(str(lib.folder) + "-none"),
    "of a table": lambda lib: infos(
        lib.find("fs.DeltaStorageHandler").from_table(lib.table()._table).get_file_info(["x.txt"])
    ),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_a_tables_files_are_handled_as_in_deltalake(anywhere: Both, call: str) -> None:
    anywhere.seed({"id": [1]})
    for lib in anywhere.libraries:
        for name, content in {"x.txt": b"abc", "d/z.txt": b"q", "d/e/y.txt": b"abcd"}.items():
            (lib.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (lib.folder / name).write_bytes(content)
    anywhere.same(CALLS[call], exactly=True)
    theirs, ours = (below(lib.folder) for lib in anywhere.libraries)
    assert ours == theirs


def below(folder: Path) -> list[str]:
    return sorted(
        os.path.relpath(Path(root) / name, folder)
        for root, folders, files in os.walk(folder)
        for name in (*folders, *files)
        if "_delta_log" not in root and not name.endswith(".parquet") and "_dldb" not in (name, Path(root).name)
    )


def test_a_local_table_has_the_scheme_fs_too(on_paths: Both) -> None:
    on_paths.seed({"id": [1, 2]})
    opened = on_paths.same(lambda lib: lib.module.DeltaTable(f"fs://{lib.folder}").to_pyarrow_table())
    assert opened.value.num_rows == 2
    on_paths.same(lambda lib: lib.module.DeltaTable.is_deltatable(f"fs://{lib.folder}"), exactly=True)


@pytest.mark.parametrize("address", ["foo://bucket/t", ""])
def test_an_address_of_no_known_kind_holds_no_table(on_paths: Both, address: str) -> None:
    on_paths.fails(lambda lib: lib.module.DeltaTable(address))
    on_paths.same(lambda lib: lib.module.DeltaTable.is_deltatable(address), exactly=True)


def test_a_failure_of_the_disk_is_an_oserror_and_only_the_named_file_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / ".a.crc").write_bytes(b"y")
    for module in (deltalake, dl):
        handler = module.fs.DeltaStorageHandler(str(tmp_path))
        with pytest.raises(OSError):  # noqa: PT011  the messages differ
            handler.open_input_file("n" * 5000)
    handler.delete_file("a")
    assert [path.name for path in tmp_path.iterdir()] == [".a.crc"]


def test_the_address_of_a_catalogs_table_is_that_of_its_folder(both: Both) -> None:
    both.seed({"id": [1]})
    handler = deltalakedb.fs.DeltaStorageHandler(both.ours.uri)
    assert handler.equals(deltalakedb.fs.DeltaStorageHandler(str(both.ours.folder)))
