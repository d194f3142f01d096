"""Copies deletion vectors into Puffin files, where Iceberg's readers find them: each once."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deltalakedb.data.deletion_vectors import DeletionVectors
from deltalakedb.iceberg.delta.delta_files import DeltaFile
from deltalakedb.iceberg.delta.generated_files import GeneratedFiles
from deltalakedb.iceberg.delta.puffin import VectorBlob, puffin_file
from deltalakedb.storage.location import open_storage
from deltalakedb.store import Store
from deltalakedb.store.connection import DuplicateRowError, LostRaceError
from deltalakedb.store.iceberg_delta import VectorCopy, read_vector_copies, write_vector_copies

ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class VectorFiles:
    """The vectors of a table, and their copies."""

    store: Store
    table_id: int
    location: str
    client_location: str
    options: Mapping[str, str] | None

    def copies(self, files: Sequence[DeltaFile]) -> dict[str, VectorCopy]:
        """The copies of the vectors of files by their keys, after those that are missing were made.

        Each is a Puffin file of its own: PyIceberg applies all vectors of a Puffin file to their data files, also those
        that the snapshot does not have.
        """
        with_vectors = {file.vector_key: file for file in files if file.vector is not None}
        if not with_vectors:
            return {}
        copies = self._read(list(with_vectors))
        missing = [file for key, file in with_vectors.items() if key not in copies]
        if not missing:
            return copies
        self._copy(missing)
        return self._read(list(with_vectors))

    def _read(self, keys: Sequence[str]) -> dict[str, VectorCopy]:
        with self.store.read() as conn:
            return read_vector_copies(conn, self.table_id, keys)

    def _copy(self, files: Sequence[DeltaFile]) -> None:
        written = GeneratedFiles(self.location, self.options)
        try:
            copies = self._write(files, written)
            written.sync()
        except BaseException:
            written.discard()
            raise
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with self.store.write() as conn:
                    taken = write_vector_copies(conn, self.table_id, copies)
                break
            except (DuplicateRowError, LostRaceError):
                if attempt == ATTEMPTS:
                    raise
        written.discard(copy.puffin_path for copy in copies if copy.vector_key in taken)

    def _write(self, files: Sequence[DeltaFile], written: GeneratedFiles) -> list[VectorCopy]:
        vectors = DeletionVectors(open_storage(self.location, self.options))
        copies = []
        for file in files:
            assert file.vector is not None
            blob = VectorBlob(file.path, vectors.bitmap(file.vector), file.vector.cardinality)
            content, (place,) = puffin_file([blob])
            path = written.write(f"vector-{uuid.uuid4()}.puffin", content)
            copies.append(VectorCopy(file.vector_key, path, len(content), place.offset, place.length))
        return copies
