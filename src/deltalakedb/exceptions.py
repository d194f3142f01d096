"""Owns every error the package raises, and the masking of secrets in their messages.

DeltaError
|__ TableNotFoundError, TableExistsError, VersionNotFoundError, SchemaMismatchError, PredicateError
|   |__ InvalidValueError          a SchemaMismatchError, PredicateError and ValueError: a value its column cannot hold
|   |__ LocationOwnedError         a TableExistsError, and a CommitFailedError: the location is another table's
|   |__ FilesPurgedError           a TableNotFoundError: the table was there, its files are deleted
|   |__ NamespaceNotFoundError     a TableNotFoundError; NamespaceNotEmptyError
|   |__ NotADeltaTableError        an Iceberg table or view has this name
|   |__ NegativeVersionError       a VersionNotFoundError, and an OverflowError as in `deltalake`
|__ NotPermittedError              the caller of `dl serve` lacks a right
|__ BadIcebergRequestError         a request of an Iceberg client, or an Iceberg metadata file, that cannot be accepted
|__ NotSayableInIcebergError       .problems: a Delta table has something that Iceberg does not
|__ PlanNotFoundError              a scan plan that never was, was cancelled or has expired
|__ PlanTaskNotFoundError          a task of such a plan, or of none
|__ MissingFileError               .path: a data file that a version names is not there; a FileNotFoundError too
|__ DeltaProtocolError             a log that breaks, or asks for more than, the protocol we know
|   |__ MalformedLogError          truncated JSON, bad UTF-8, two metaData, corrupt checkpoint, escaping path
|   |__ UnsupportedFeatureError    .features, .table
|   |   |__ UnsupportedWriteError  of a commit; a CommitFailedError too
|   |__ LogGapError                .missing_version
|   |__ InvalidCommitError         proposed actions that break the protocol
|       |__ AppendOnlyError        of rows that delta.appendOnly keeps; a CommitFailedError too
|__ CommitFailedError
|   |__ ConcurrentAppendError, ConcurrentDeleteReadError, ConcurrentDeleteDeleteError,
|   |   MetadataChangedError, ProtocolChangedError, ConcurrentTransactionError, ExternalWriterError
|   |__ FilesVacuumedError         .path: a file that a commit or a reader needs is one that a vacuum or a purge takes;
|   |                              a FileNotFoundError too
|   |__ NotWritableError           a follower, or a frozen, detaching, detached or dropped table
|   |__ NameChangedError           a name, or the list of names, is not what the transaction saw
|   |__ DropProtectedError         the table's property drop_protection is true
|   |__ TableLockedError           another transaction holds the table's intent lock
|   |__ VersionTakenError          .version was committed by somebody else first; read on and try the next one
|   |__ RequirementFailedError     what an Iceberg client requires of a table or a view does not hold any more
|   |__ GoneError                  a transaction over HTTP that is over: aborted, timed out or never begun
|   |__ OutcomeUnknownError        the database went away during the commit and did not come back
|__ StoreError                     driver error in __cause__
|   |__ StoreBusyError, StoreClosedError, SchemaVersionError, NotADatabaseError
|__ StorageError                   .what, .uncertain: files on a disk or in an object store; an OSError too
|   |__ SigningNotSupportedError   a storage without signed URLs
|__ MirrorError
|   |__ DriftError, TableReplacedError
|   |__ CannotMirrorError          an Iceberg table holds what Delta readers cannot read
|__ EndpointError                  `dl serve` cannot be reached, or does not let us in
|   |__ EndpointBusyError          it has no thread free, or is being stopped
|       |__ RateLimitError         .retry_seconds: a caller sends too many requests
|__ CaptureError                   changes of a Postgres database cannot be captured
|   |__ CaptureSetupError, SourceUnavailableError, CaptureRunningError, SlotLostError, WrongServerError,
|   |   SparkDiedError
|   |__ ValueNotHeld               .where, .place: a value that its column's type cannot hold; it stops one table
|__ TokenNameError                 a named token of `dl serve` that is there already, or not there
|__ ConfigError
    |__ CatalogUriError, TableNameError, MissingExtraError
    |__ UnknownLocationError       a TableNotFoundError too: an address of no kind that is known
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_MASK = "***"
CREDENTIAL_WORDS = (
    r"(?:password|passwd|pwd|passphrase|secret|token|credentials?|access[_\-.]?key|account[_\-.]?key"
    r"|api[_\-.]?key|private[_\-.]?key|(?<![a-z])sas)"
)
"""What a key that holds a credential is called, at its end; `log/checks/secret_checks.py` refuses such keys."""

CREDENTIAL_TAIL = r"(?:[_\-.]?(?:id|key))?"
AWS_KEY_ID = r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
# No rule begins with a repetition, so that the time that it takes is proportional to the length of the text.
_SECRET_KEY = rf"(?:{CREDENTIAL_WORDS}|signature|(?<![a-z])sig){CREDENTIAL_TAIL}"
# Over-masking is harmless, leaking is not: an unquoted value ends at white space, a URL's password at its last "@".
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w\-.~+/=]{8,}"), rf"\1 {_MASK}"),
    (
        re.compile(
            rf"(?i)({_SECRET_KEY}[\"']?\s*(?:=>|=|:(?!//))\s*)"
            r"(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\S+)"
        ),
        rf"\1{_MASK}",
    ),
    (re.compile(AWS_KEY_ID), _MASK),
    (re.compile(r"(?<![A-Za-z0-9])(dlt_[0-9a-f]{16})_[\w\-]+"), rf"\1_{_MASK}"),
    (re.compile(r"(?<![\w\-])eyJ[\w\-]{8,}\.[\w\-]{2,}\.[\w\-]*"), _MASK),  # a JSON web token
)


def redact(text: str) -> str:
    """Mask passwords, keys and tokens in DSNs, URLs, headers and key=value pairs."""
    if "://" in text:
        text = _WORD.sub(_mask_password, text)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


_WORD = re.compile(r"\S+")
_USER = re.compile(r"[\w+.\-]://[^\s/@:?#]*:")


def _mask_password(match: re.Match[str]) -> str:
    """Mask the password of a URL, from the first colon after `://` to the last `@` of the word."""
    word = match.group()
    end = word.rfind("@")
    user = _USER.search(word, 0, end) if end >= 0 else None
    return word if user is None else f"{word[: user.end() - 1]}:{_MASK}{word[end:]}"


_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def escape_controls(text: str) -> str:
    """Write control characters as \\x1b: what others named must not move the cursor, or begin a line, in a log.

    Line feeds and tabs stay, because tracebacks have them.
    """
    return _CONTROLS.sub(lambda match: match.group().encode("unicode_escape").decode(), text)


class DeltaError(Exception):
    """Any error of this package."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors are pickled between processes; the default would call a subclass with its message alone.

        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[DeltaError], args: tuple[object, ...], fields: dict[str, object]) -> DeltaError:
    error = kind.__new__(kind, *args)
    error.args = args  # not kept by `OSError.__new__`
    error.__dict__.update(fields)
    return error


class TableNotFoundError(DeltaError):
    """No such table in the catalog, or no Delta table at the location."""


class TableExistsError(DeltaError):
    """The name or the location is taken."""


class FilesPurgedError(TableNotFoundError):
    """The table was there, and its files were deleted after it was dropped."""


class NamespaceNotFoundError(TableNotFoundError):
    """No such namespace in the catalog."""


class NamespaceNotEmptyError(DeltaError):
    """A namespace that holds tables or other namespaces is not dropped."""


class NotPermittedError(DeltaError):
    """The caller may not do this: no grant gives the right, to the caller or to one of the caller's groups."""


class NotADeltaTableError(DeltaError):
    """The name belongs to an Iceberg table or view, and the statement is for Delta tables."""


class VersionNotFoundError(DeltaError):
    """The version was never committed, or lies before what is kept."""


class NegativeVersionError(VersionNotFoundError, OverflowError):
    """A version below 0; `deltalake` raises OverflowError here."""


class PlanNotFoundError(DeltaError):
    """The scan plan does not exist, was cancelled or has expired: plan the scan again."""


class PlanTaskNotFoundError(DeltaError):
    """The plan task does not exist, or its scan plan was cancelled or has expired: plan the scan again."""


class MissingFileError(DeltaError, FileNotFoundError):
    """A data file that a version of the table names is not there; `deltalake` raises FileNotFoundError here."""

    def __init__(self, what: str, *, path: str, advice: str) -> None:
        self.what = what
        """What happened, without the advice."""
        self.path = redact(path)
        super().__init__(f"{what}; {advice}")


class SchemaMismatchError(DeltaError):
    """Data or a request does not fit the table's schema."""


class PredicateError(DeltaError):
    """A predicate that cannot be parsed, or names a column the table does not have."""


class InvalidValueError(SchemaMismatchError, PredicateError, ValueError):
    """A value that its column cannot hold, or that there is none of: a number with too many digits for a decimal, bytes
    that are no text, the result of a division by zero, a schema that is written wrongly."""


class BadIcebergRequestError(DeltaError):
    """A request of an Iceberg client, or an Iceberg metadata file, that is malformed or against the rules."""


class NotSayableInIcebergError(DeltaError):
    """A Delta table that has something which Iceberg does not."""

    def __init__(self, message: str, problems: Iterable[str] = ()) -> None:
        self.problems = tuple(problems)
        super().__init__(message)


class DeltaProtocolError(DeltaError):
    """A log that breaks, or asks for more than, the protocol we know."""


class MalformedLogError(DeltaProtocolError):
    """A log file that is not what the protocol says it must be."""


class UnsupportedFeatureError(DeltaProtocolError):
    """The table needs features that this package does not have."""

    def __init__(self, table: str, features: Iterable[str], *, purpose: str = "read", hint: str = "") -> None:
        shown, self.features = redact(table), tuple(sorted(features))
        named = ", ".join(self.features)
        tail = f" {hint}" if hint else ""
        super().__init__(f"table {shown} cannot be {purpose}: it needs unsupported table features: {named}.{tail}")
        self.table: str | None = shown


class LogGapError(DeltaProtocolError):
    """A version is missing between two versions that exist."""

    def __init__(self, table: str, missing_version: int, detail: str = "") -> None:
        self.missing_version = missing_version
        tail = f": {detail}" if detail else ""
        super().__init__(f"the log of table {redact(table)} has a gap: version {missing_version} is missing{tail}")


class InvalidCommitError(DeltaProtocolError):
    """Proposed actions that break the protocol, or do not fit the table."""


class CommitFailedError(DeltaError):
    """A commit did not happen."""

    def __init__(
        self, message: str, *, table: str | None = None, version: int | None = None, path: str | None = None
    ) -> None:
        self.table = None if table is None else redact(table)
        self.version = version
        """The version that came first, where one did."""
        self.path = None if path is None else redact(path)
        super().__init__(message)


class AppendOnlyError(InvalidCommitError, CommitFailedError):
    """An append-only table would lose rows."""


class UnsupportedWriteError(UnsupportedFeatureError, CommitFailedError):
    """A commit needs features that this package does not have."""


class VersionTakenError(CommitFailedError):
    """A commit that must become exactly one version came second; whoever made it decides what to do."""


class ConcurrentAppendError(CommitFailedError):
    """Files were added to what this transaction read."""


class ConcurrentDeleteReadError(CommitFailedError):
    """A file this transaction read was deleted."""


class ConcurrentDeleteDeleteError(CommitFailedError):
    """A file this transaction deletes was deleted already."""


class MetadataChangedError(CommitFailedError):
    """The table's metadata changed since this transaction began."""


class ProtocolChangedError(CommitFailedError):
    """The table's protocol changed since this transaction began."""


class ConcurrentTransactionError(CommitFailedError):
    """Another commit carried the same application id."""


class ExternalWriterError(CommitFailedError):
    """Somebody else wrote the version into `_delta_log`."""


class FilesVacuumedError(CommitFailedError, FileNotFoundError):
    """A vacuum, or a purge, has deleted a file that is needed, or may be deleting it now."""


class NotWritableError(CommitFailedError):
    """The table's mode or state does not let this catalog write it."""


class NameChangedError(CommitFailedError):
    """A name, or the list of names, is not what the transaction saw: it was created, renamed or dropped meanwhile."""


class DropProtectedError(CommitFailedError):
    """The table's property `drop_protection` is true."""


class LocationOwnedError(TableExistsError, CommitFailedError):
    """The location, one around it or one inside it belongs to another table."""


class TableLockedError(CommitFailedError):
    """Another transaction holds the table's intent lock."""


class RequirementFailedError(CommitFailedError):
    """What an Iceberg client requires of a table or a view does not hold any more."""


class GoneError(CommitFailedError):
    """The transaction is over, and nothing of it was committed."""


class OutcomeUnknownError(CommitFailedError):
    """The database went away during the commit and did not come back: nobody can say yet whether it happened."""


class StoreError(DeltaError):
    """The database refused or failed; the driver's error is the cause."""


class StoreClosedError(StoreError):
    """The catalog was closed."""


class StoreBusyError(StoreError):
    """The database stayed locked for longer than the time-out."""


class SchemaVersionError(StoreError):
    """The database's schema is newer, older or other than this code's."""


class NotADatabaseError(StoreError):
    """The catalog file is something else than a database."""


class EndpointError(DeltaError):
    """An endpoint (`dl serve`, or a session's own) cannot be reached, or does not let us in."""


class EndpointBusyError(EndpointError):
    """The endpoint has no thread free for longer than a request may wait, or is being stopped."""


class RateLimitError(EndpointBusyError):
    """A caller sends more requests than `serve.rate_limit` allows."""

    def __init__(self, message: str, *, retry_seconds: int = 1) -> None:
        self.retry_seconds = retry_seconds
        super().__init__(message)


class TokenNameError(DeltaError):
    """A named token of `dl serve` that is there already, or not there."""


class CaptureError(DeltaError):
    """Changes of a Postgres database cannot be captured."""


class CaptureSetupError(CaptureError):
    """The source is not set up for it: its settings, the publication, a table without a key."""


class SourceUnavailableError(CaptureError):
    """The source does not answer, or the connection broke; another try may succeed."""


class CaptureRunningError(CaptureError):
    """Another process runs this capture."""


class SlotLostError(CaptureError):
    """The replication slot is gone, invalid, or past what was captured: changes are lost, tables need a new copy."""


class SparkDiedError(CaptureError):
    """The Java process of the Spark that a capture runs on has ended."""


class WrongServerError(CaptureError):
    """The source is another server than the one that was captured."""


class ValueNotHeld(CaptureError):  # noqa: N818  a finding about the data: it stops one table, not the capture
    """A value of the source has no place in the column's type."""

    def __init__(self, message: str, *, where: str = "", place: int = 0) -> None:
        self.where = where
        """`schema.table.column`."""
        self.place = place
        """Which of the converted values it is."""
        super().__init__(message)


class StorageError(DeltaError, OSError):
    """Files on a disk or in an object store cannot be read, written, listed or deleted.

    `deltalake` raises OSError here.
    """

    uncertain: bool = False
    """Whether a write that failed may have happened all the same: the storage did not answer."""

    def __init__(self, what: str, advice: str = "") -> None:
        self.what = what
        """What happened, without the advice."""
        super().__init__(f"{what}; {advice}" if advice else what)


class SigningNotSupportedError(StorageError):
    """The storage has no signed URLs."""


class MirrorError(DeltaError):
    """SQL and `_delta_log` could not be brought together."""

    uncertain: bool = False
    """Whether what failed may have happened all the same: the storage did not answer."""


class CannotMirrorError(MirrorError):
    """An Iceberg table holds something that Delta readers cannot read, or would read wrongly."""


class DriftError(MirrorError):
    """SQL and `_delta_log` disagree."""


class TableReplacedError(MirrorError):
    """Another table (another metaData.id) lives at the location now."""


class ConfigError(DeltaError):
    """A setting that cannot be used."""


class UnknownLocationError(ConfigError, TableNotFoundError):
    """A table's address that is neither a path nor a URI of a known scheme."""


class CatalogUriError(ConfigError):
    """A catalog address that cannot be understood."""


class TableNameError(ConfigError):
    """A table or namespace name against the rules."""


class MissingExtraError(ConfigError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        self.extra = extra
        super().__init__(f"{what} needs an optional dependency: pip install 'deltalakedb[{extra}]'")


__all__ = [  # every error, and the masking of secrets
    *(name for name, item in tuple(globals().items()) if isinstance(item, type) and issubclass(item, DeltaError)),
    "redact",
]
