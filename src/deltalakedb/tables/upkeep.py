"""UpkeepOfTable: maintenance of a DeltaTable: optimize, vacuum, restore, alter."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from deltalakedb.alter import TableAlterer
from deltalakedb.catalog.instants import travel_time_ms
from deltalakedb.exceptions import DeltaError, MissingFileError
from deltalakedb.optimize import TableOptimizer
from deltalakedb.runtime.arguments import check_commit_arguments, check_flag, check_number, check_numbers
from deltalakedb.runtime.positional import commit_arguments
from deltalakedb.tables.changes import ChangesOfTable
from deltalakedb.transaction import CommitProperties, PostCommitHookProperties

_REVERSED = ("post_commithook_properties", "commit_properties")


class UpkeepOfTable(ChangesOfTable):
    """Maintenance of files and log, and changes of the table's definition."""

    @property
    def optimize(self) -> TableOptimizer:
        """Compacts or sorts the table's files."""
        return TableOptimizer(self)

    @property
    def alter(self) -> TableAlterer:
        """Changes the table's definition."""
        return TableAlterer(self)

    def restore(
        self,
        target: int | datetime | str,
        *,
        ignore_missing_files: bool = False,
        protocol_downgrade_allowed: bool = False,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> dict[str, Any]:
        """Make a new version equal to an older one, given by its number or a time (a datetime, or ISO 8601).

        Files of that version that no longer exist are an error, unless `ignore_missing_files`: `repair` removes them
        then. The protocol stays as it is, unless `protocol_downgrade_allowed`.
        """
        from deltalakedb.operations.restore import restore

        check_flag(ignore_missing_files)
        check_flag(protocol_downgrade_allowed)
        if isinstance(target, datetime):
            target = target.isoformat()  # it must have a zone, as a text must
        if isinstance(target, int) and 0 <= target < 2**63:
            parameters = {"version": str(int(target))}
        elif isinstance(target, str):
            parameters = {"datetime": str(travel_time_ms(target))}
        else:
            raise DeltaError(
                f"Either the version or datetime should be provided for restore: {target!r} is neither a version of "
                f"{self.name} nor a time"
            )
        older = self._snapshot_at(target)
        verb = partial(
            restore,
            older=older,
            parameters=parameters,
            ignore_missing_files=ignore_missing_files,
            protocol_downgrade_allowed=protocol_downgrade_allowed,
        )
        try:
            return self._run(verb, commit_properties, post_commithook_properties)
        except MissingFileError as error:
            raise self._explain_missing(error, older.version) from error

    def repair(
        self,
        dry_run: bool = False,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> dict[str, Any]:
        """Remove files from the table that no longer exist in storage; their rows are lost."""
        from deltalakedb.operations.repair import repair

        check_flag(dry_run)
        arguments = commit_arguments("repair", args, commit_properties, post_commithook_properties, order=_REVERSED)
        return self._run(partial(repair, dry_run=dry_run), *arguments)

    def vacuum(
        self,
        retention_hours: int | None = None,
        dry_run: bool = True,
        enforce_retention_duration: bool = True,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
        full: bool = False,
        keep_versions: list[int] | None = None,
    ) -> list[str]:
        """Delete files that no version within the retention needs, and return their paths. With `dry_run`, the
        default, only return the paths.

        The retention is `delta.deletedFileRetentionDuration`, else 168 hours. By default only files that the log
        removed are deleted; with `full` also files that no commit names. Files of `keep_versions` are kept.
        """
        if args:
            positional = dict(zip((*_REVERSED, "full", "keep_versions"), args, strict=False))
            warnings.warn(
                "Passing commit arguments positionally to vacuum() is deprecated and will be removed in a future "
                "release. Use keyword arguments instead.",
                DeprecationWarning,
                stacklevel=2,
            )
            if len(args) > 4:
                raise TypeError("vacuum() got unexpected positional arguments")
            commit_properties = positional.get("commit_properties", commit_properties)
            post_commithook_properties = positional.get("post_commithook_properties", post_commithook_properties)
            full, keep_versions = positional.get("full", full), positional.get("keep_versions", keep_versions)
        if isinstance(retention_hours, int) and retention_hours < 0:
            raise ValueError("The retention periods should be positive.")
        check_number(retention_hours)
        for flag in (dry_run, enforce_retention_duration, full):
            check_flag(flag)
        check_numbers(keep_versions)
        check_commit_arguments(commit_properties, post_commithook_properties)
        return self._vacuum(
            retention_hours,
            dry_run=dry_run,
            enforced=enforce_retention_duration,
            full=full,
            keep=keep_versions or (),
            given=(commit_properties, post_commithook_properties),
        )

    def _vacuum(
        self,
        hours: float | None,
        *,
        dry_run: bool,
        enforced: bool,
        full: bool,
        keep: Any,
        given: tuple[CommitProperties | None, PostCommitHookProperties | None] = (None, None),
        progress: Callable[[int], None] | None = None,
    ) -> list[str]:
        from deltalakedb.tables.vacuuming import vacuum

        self._refuse_in_transaction("vacuum")
        self.update_incremental()
        return vacuum(
            self._backing,
            self._snapshot,
            lambda verb: self._run(verb, *given),
            hours=hours,
            dry_run=dry_run,
            enforced=enforced,
            full=full,
            keep=keep,
            progress=progress,
        )

    # -- the log

    def create_checkpoint(self) -> None:
        """Write a checkpoint of this version, so that readers of the files start there."""
        from deltalakedb.tables.logs import create_checkpoint

        self._refuse_in_transaction("create_checkpoint")
        create_checkpoint(self._backing, self._snapshot)

    def compact_logs(self, starting_version: int, ending_version: int) -> None:
        """Combine the commits of a range of versions into one log file."""
        from deltalakedb.tables.logs import compact_logs

        for version in (starting_version, ending_version):
            check_number(version)
        self._refuse_in_transaction("compact_logs")
        compact_logs(self._backing, starting_version, ending_version)

    def cleanup_metadata(self) -> None:
        """Delete commits from `_delta_log` that are older than `delta.logRetentionDuration` (30 days) and covered by a
        checkpoint, which must not be newer than the version this object is at."""
        from deltalakedb.tables.logs import cleanup_metadata

        self._refuse_in_transaction("cleanup_metadata")
        cleanup_metadata(self._backing, self._snapshot)

    def generate(self) -> None:
        """Write a symlink manifest of this version, for engines that read file lists instead of the Delta log."""
        from deltalakedb.operations.generate import generate
        from deltalakedb.operations.target import Target

        self._refuse_in_transaction("generate")
        generate(
            Target(
                name=self.name,
                location=self._backing.location,
                options=self._backing.storage_options(),
                snapshot=self._snapshot,
                plan=lambda predicate: self._planned(predicate, None, False).files,
            )
        )

    def _refuse_in_transaction(self, what: str) -> None:
        """Raise in a transaction; do nothing outside."""
