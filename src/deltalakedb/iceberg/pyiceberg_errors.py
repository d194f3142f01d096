"""The errors that PyIceberg's callers expect, for those of this package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyiceberg import exceptions as theirs

from deltalakedb.exceptions import (
    BadIcebergRequestError,
    CommitFailedError,
    DeltaError,
    LocationOwnedError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    NotADeltaTableError,
    NotWritableError,
    OutcomeUnknownError,
    StoreError,
    TableExistsError,
    TableNameError,
    TableNotFoundError,
    UnsupportedWriteError,
)

# The first match counts, so a class comes before those that it is derived from.
_ERRORS: tuple[tuple[type[DeltaError], type[Exception]], ...] = (
    (NamespaceNotFoundError, theirs.NoSuchNamespaceError),
    (NamespaceNotEmptyError, theirs.NamespaceNotEmptyError),
    (TableNotFoundError, theirs.NoSuchTableError),
    (NotADeltaTableError, theirs.NoSuchTableError),
    (LocationOwnedError, theirs.CommitFailedException),
    (TableExistsError, theirs.TableAlreadyExistsError),
    (TableNameError, theirs.NoSuchIdentifierError),
    (BadIcebergRequestError, theirs.BadRequestError),
    (OutcomeUnknownError, theirs.CommitStateUnknownException),
    (CommitFailedError, theirs.CommitFailedException),
)


@contextmanager
def raised_as_pyiceberg(
    *,
    missing: type[Exception] | None = None,
    exists: type[Exception] | None = None,
    is_commit: bool = False,
) -> Iterator[None]:
    """Raise PyIceberg's error for one of ours.

    `missing` and `exists` stand for the errors of tables, in methods of views and namespaces. With `is_commit` an error
    of the database means that the outcome of a commit is unknown, so that PyIceberg keeps the files that it wrote.
    """
    try:
        yield
    except (NotWritableError, UnsupportedWriteError):
        raise  # PyIceberg tries again what failed in a race, and has no error for what is refused for good
    except DeltaError as error:
        kind = _kind_of(error, is_commit=is_commit)
        kind = missing if missing is not None and kind is theirs.NoSuchTableError else kind
        kind = exists if exists is not None and kind is theirs.TableAlreadyExistsError else kind
        if kind is None:
            raise
        raise kind(str(error)) from error


def _kind_of(error: DeltaError, *, is_commit: bool) -> type[Exception] | None:
    if is_commit and isinstance(error, StoreError):
        return theirs.CommitStateUnknownException
    return next((kind for ours, kind in _ERRORS if isinstance(error, ours)), None)
