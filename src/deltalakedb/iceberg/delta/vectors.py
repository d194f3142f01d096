"""Copies deletion vectors into Puffin files, where Iceberg's readers find them: each once."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deltalakedb.data.deletion_vectors import DeletionVectors
from deltalakedb.iceberg.delta.delta_files import DeltaFile
from deltalakedb.iceberg.delta.delta_snapshots import FOLDER
from deltalakedb.iceberg.delta.puffin import VectorBlob, puffin_file
from deltalakedb.storage.opening import open_storage
from deltalakedb.store import Store
from deltalakedb.store.connection import DuplicateRowError
from deltalakedb.store.iceberg_delta import VectorCopy, read_vector_copies, write_vector_copies


@dataclass(frozen=True, slots=True)
class VectorFiles:
    """The vectors of a table, and their copies."""

    store: Store
    table_id: int
    location: str
    client_location: str
    options: Mapping[str, str] | None

    def copies(self, files: Sequence[DeltaFile]) -> dict[str, VectorCopy]:
        """The copies of the vectors of files by their keys; those not copied yet are copied into one file."""
        with_vectors = {file.vector_key: file for file in files if file.vector is not None}
        if not with_vectors:
            return {}
        copies = self._read(list(with_vectors))
        missing = [file for key, file in with_vectors.items() if key not in copies]
        if missing and not self._copy(missing):
            for file in missing:  # another process has copied some of them
                if file.vector_key not in self._read([file.vector_key]):
                    self._copy([file])
        return self._read(list(with_vectors)) if missing else copies

    def _read(self, keys: Sequence[str]) -> dict[str, VectorCopy]:
        with self.store.read() as conn:
            return read_vector_copies(conn, self.table_id, keys)

    def _copy(self, files: Sequence[DeltaFile]) -> bool:
        """Copy vectors into one file; False if one of them has a copy already."""
        storage = open_storage(self.location, self.options)
        vectors = DeletionVectors(storage)
        blobs = []
        for file in files:
            assert file.vector is not None
            blobs.append(VectorBlob(file.path, vectors.bitmap(file.vector), file.vector.cardinality))
        content, places = puffin_file(blobs)
        name = f"{FOLDER}/vectors-{uuid.uuid4()}.puffin"
        storage.put(name, content)
        storage.sync([name])
        path = f"{self.client_location}/{name}"
        rows = [
            VectorCopy(file.vector_key, path, len(content), place.offset, place.length)
            for file, place in zip(files, places, strict=True)
        ]
        try:
            with self.store.write() as conn:
                write_vector_copies(conn, self.table_id, rows)
        except DuplicateRowError:
            storage.delete(name)
            return False
        return True
