"""Validate: compares SQL with `_delta_log` version by version and reports the first difference."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.mirror.compare import first_difference, first_state_difference
from deltalakedb.store.connection import Store
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.registry import TableRow


@dataclass(frozen=True, slots=True)
class Drift:
    """The first version in which SQL and the files disagree."""

    version: int
    difference: str


@dataclass(frozen=True, slots=True)
class ValidationReport:
    table: TableRow
    sql_version: int
    files_version: int
    num_commits_compared: int
    num_states_compared: int
    drift: Drift | None

    @property
    def lag(self) -> int:
        """Versions the files have and SQL does not have yet; a follower catches up, so this is not drift."""
        return max(0, self.files_version - self.sql_version)


def validate(
    store: Store,
    table: TableRow,
    *,
    storage_options: Mapping[str, str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> ValidationReport:
    """Every commit both sides have is compared action by action, every base and the head state by state."""
    ours = SqlTxnLogReader(store, table)
    theirs = FileTxnLogReader(table.location, storage_options, table=table.full_name)
    check = _Check(ours, theirs, progress)
    drift = check.run()
    return ValidationReport(
        table, ours.latest_version(), theirs.latest_version(), check.num_commits, check.num_states, drift
    )


class _Check:
    def __init__(self, ours: SqlTxnLogReader, theirs: FileTxnLogReader, progress: Callable[[int], None] | None) -> None:
        self._ours, self._theirs, self._progress = ours, theirs, progress
        self.num_commits = self.num_states = 0

    def run(self) -> Drift | None:
        sql_version, files_version = self._ours.latest_version(), self._theirs.latest_version()
        if sql_version > files_version:
            return Drift(
                files_version + 1, f"SQL is at version {sql_version}, the files end at version {files_version}"
            )
        for version in self._ours.versions():
            difference = self._compare(version)
            if difference is None and version == sql_version:
                difference = self._compare_state(version)
            if difference is not None:
                return Drift(version, difference)
            if self._progress:
                self._progress(1)
        return None

    def _compare(self, version: int) -> str | None:
        """A version taken from a checkpoint has no actions of its own, so its state is compared."""
        if not self._ours.has_commit(version):
            return self._compare_state(version)
        if not self._theirs.has_commit(version):
            return None  # cleaned up since; the states after it are compared
        self.num_commits += 1
        ours, theirs = next(self._ours.commits(version, version)), next(self._theirs.commits(version, version))
        return first_difference(ours, theirs)

    def _compare_state(self, version: int) -> str | None:
        if version < self._theirs.earliest_version():
            return None
        self.num_states += 1
        return first_state_difference(self._ours.snapshot(version), self._theirs.snapshot(version))
