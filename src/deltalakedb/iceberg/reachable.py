"""Finds the files that the metadata of an Iceberg table reaches: manifest lists, manifests, data and delete files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from deltalakedb.exceptions import MalformedLogError, MissingFileError, redact
from deltalakedb.iceberg.planning.avro import open_avro
from deltalakedb.iceberg.planning.manifests import read_manifest_list
from deltalakedb.iceberg.planning.reading import ReadFile, StoredFiles, read_ahead

_STATUS, _FILE, _PATH, _DELETED = "f0", "f2", "f100", 2


@dataclass(frozen=True, slots=True)
class ReachableFiles:
    """The files of a table without its data files and its own metadata files."""

    manifests: list[str] = field(default_factory=list)
    manifest_lists: list[str] = field(default_factory=list)
    statistics: list[str] = field(default_factory=list)


def find_files(metadata: Mapping[str, Any], options: Mapping[str, str] | None) -> ReachableFiles:
    """Return the manifest lists, manifests and statistics files of all snapshots. Missing lists are ignored."""
    files = ReachableFiles()
    for snapshot in metadata.get("snapshots", ()):
        manifest_list = snapshot.get("manifest-list")
        if manifest_list is None:  # version 1 of the format may list the manifests itself
            files.manifests.extend(snapshot.get("manifests", ()))
        else:
            files.manifest_lists.append(manifest_list)
    manifests = dict.fromkeys(files.manifests)
    for path, content in _read_existing(files.manifest_lists, StoredFiles(options)):
        manifests.update(dict.fromkeys(manifest.path for manifest in read_manifest_list(path, content)))
    files.manifests[:] = manifests
    for key in ("statistics", "partition-statistics"):
        files.statistics.extend(item["statistics-path"] for item in metadata.get(key, ()))
    return files


def read_data_files(manifests: Iterable[str], options: Mapping[str, str] | None) -> Iterator[str]:
    """Yield the live data and delete files of manifests. Missing manifests are ignored."""
    for manifest, content in _read_existing(manifests, StoredFiles(options)):
        for record in open_avro(manifest, content).records():
            try:
                if record[_STATUS] != _DELETED:
                    yield record[_FILE][_PATH]
            except (KeyError, TypeError) as error:
                raise MalformedLogError(f"the manifest {redact(manifest)} has a malformed entry") from error


def _read_existing(paths: Iterable[str], read: ReadFile) -> Iterator[tuple[str, bytes]]:
    listed = list(dict.fromkeys(paths))
    path_of = dict(zip(listed, listed, strict=True))
    for path, content in read_ahead(listed, path_of, partial(_read_if_there, read)):
        if content:
            yield path, content


def _read_if_there(read: ReadFile, path: str) -> bytes:
    """Return the content of a file; nothing if it is gone, as an Avro file is never empty."""
    try:
        return read(path)
    except MissingFileError:
        return b""
