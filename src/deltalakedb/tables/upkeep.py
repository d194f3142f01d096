"""UpkeepOfTable: what keeps a DeltaTable small, fast and as it is wanted: optimize, vacuum, restore, alter."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from deltalakedb._positional import commit_arguments
from deltalakedb.alter import TableAlterer
from deltalakedb.arguments import check_commit_arguments, check_flag, check_number
from deltalakedb.exceptions import DeltaError, MissingFileError
from deltalakedb.instants import to_epoch_ms
from deltalakedb.optimize import TableOptimizer
from deltalakedb.tables.changes import ChangesOfTable
from deltalakedb.transaction import CommitProperties, PostCommitHookProperties

_REVERSED = ("post_commithook_properties", "commit_properties")


class UpkeepOfTable(ChangesOfTable):
    """Maintenance of files and log, and changes of the table's definition."""

    @property
    def optimize(self) -> TableOptimizer:
        """What makes the table's files fewer, or better sorted."""
        return TableOptimizer(self)

    @property
    def alter(self) -> TableAlterer:
        """What changes the table's definition."""
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
        """Make a new version that is as an older one was, given by its number or a time (a datetime, or ISO 8601).

        Files of then that are gone are an error, unless `ignore_missing_files`: `repair` then takes them out. The
        protocol stays as it is, unless `protocol_downgrade_allowed`.
        """
        from deltalakedb.operations.restore import restore

        if isinstance(target, int) and target >= 0:
            parameters = {"version": str(int(target))}
        elif isinstance(target, str | datetime):
            parameters = {"datetime": str(to_epoch_ms(target))}
        else:
            raise DeltaError(f"{self.name}: a version to restore is a number from 0 on or a time, not {target!r}")
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
        """Take files out of the table that are gone from where they should lie; their rows are lost."""
        from deltalakedb.operations.repair import repair

        check_flag(dry_run)
        given = commit_arguments("repair", args, commit_properties, post_commithook_properties, order=_REVERSED)
        return self._run(partial(repair, dry_run=dry_run), *given)

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
        """Delete files that no version within the retention needs; their paths. With `dry_run`, as by default, only
        say which.

        The retention is `delta.deletedFileRetentionDuration`, else 168 hours. Without `full` only files that the log
        says were removed; with it also those that no commit names. Files of `keep_versions` stay.
        """
        if args:
            given = dict(zip((*_REVERSED, "full", "keep_versions"), args, strict=False))
            if len(args) > 4:
                raise TypeError("vacuum() takes at most 4 commit arguments by position")
            warnings.warn(
                "vacuum() takes its commit arguments by name: giving them by position is deprecated",
                DeprecationWarning,
                stacklevel=2,
            )
            commit_properties = given.get("commit_properties", commit_properties)
            post_commithook_properties = given.get("post_commithook_properties", post_commithook_properties)
            full, keep_versions = given.get("full", full), given.get("keep_versions", keep_versions)
        if isinstance(retention_hours, int) and retention_hours < 0:
            raise ValueError("a retention is 0 hours or more")
        check_number(retention_hours)
        check_flag(dry_run)
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

    # -- the log itself

    def create_checkpoint(self) -> None:
        """Write a checkpoint of this version, from which readers of the files start."""
        from deltalakedb.tables.logs import create_checkpoint

        self._refuse_in_transaction("create_checkpoint")
        create_checkpoint(self._backing, self._snapshot)

    def compact_logs(self, starting_version: int, ending_version: int) -> None:
        """Put the commits of a range of versions together into one file of the log."""
        from deltalakedb.tables.logs import compact_logs

        for version in (starting_version, ending_version):
            check_number(version)
        self._refuse_in_transaction("compact_logs")
        compact_logs(self._backing, starting_version, ending_version)

    def cleanup_metadata(self) -> None:
        """Delete commits from `_delta_log` that are older than `delta.logRetentionDuration` (30 days), as far as a
        checkpoint stands for them."""
        from deltalakedb.tables.logs import cleanup_metadata

        self._refuse_in_transaction("cleanup_metadata")
        cleanup_metadata(self._backing, self._snapshot)

    def generate(self) -> None:
        """Write a symlink manifest of this version, for engines that read lists of files instead of Delta's log."""
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
        """Only a transaction minds."""
