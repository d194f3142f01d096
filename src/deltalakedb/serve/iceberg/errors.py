"""Errors in the protocol's form: each exception has a status and a type that Iceberg's clients know."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from deltalakedb.exceptions import (
    BadIcebergRequestError,
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    EndpointBusyError,
    LocationOwnedError,
    MalformedLogError,
    MissingExtraError,
    MissingFileError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    NotADatabaseError,
    NotPermittedError,
    OutcomeUnknownError,
    PlanNotFoundError,
    PlanTaskNotFoundError,
    RateLimitError,
    SchemaVersionError,
    StorageError,
    StoreError,
    TableExistsError,
    TableNotFoundError,
    redact,
)
from deltalakedb.serve.problems import RETRY_SECONDS, log_unexpected

logger = logging.getLogger(__name__)

Kind = Literal["namespace", "table", "view", "other"]
"""What an endpoint is about: it decides the type of an error, as Iceberg's clients expect."""


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """An error as it is sent: the status, its type, and a message without secrets."""

    status: int
    type: str
    message: str
    retry_seconds: int = RETRY_SECONDS
    """When to repeat a request that was answered 429 or 503."""

    @property
    def body(self) -> Mapping[str, object]:
        return {"error": {"message": redact(self.message), "type": self.type, "code": self.status}}

    @property
    def headers(self) -> Mapping[str, str]:
        """503 tells that nothing has happened: Iceberg's clients repeat such a request if it says when."""
        if self.status == 401:
            return {"WWW-Authenticate": "Bearer"}
        return {"Retry-After": str(self.retry_seconds)} if self.status in (429, 503) else {}


class Refusal(Exception):  # noqa: N818  the protocol's name for what is refused is in `answer`
    """A request that an endpoint refuses by itself."""

    def __init__(self, status: int, type_: str, message: str) -> None:
        self.answer = ErrorAnswer(status, type_, message)
        super().__init__(message)


def bad_request(message: str) -> Refusal:
    """A request that is malformed."""
    return Refusal(400, "BadRequestException", message)


def not_found(kind: Kind, message: str) -> Refusal:
    """A namespace, table or view that does not exist."""
    return Refusal(404, _MISSING[kind], message)


_MISSING: dict[Kind, str] = {
    "namespace": "NoSuchNamespaceException",
    "table": "NoSuchTableException",
    "view": "NoSuchViewException",
    "other": "NotFoundException",
}
# The nearest class along an exception's ancestors decides, so a new error is answered like its base class.
_ANSWERS: dict[type[DeltaError], tuple[int, str]] = {
    DeltaError: (400, "BadRequestException"),
    NamespaceNotFoundError: (404, "NoSuchNamespaceException"),
    NotPermittedError: (403, "NotAuthorizedException"),
    TableExistsError: (409, "AlreadyExistsException"),
    LocationOwnedError: (409, "AlreadyExistsException"),
    NamespaceNotEmptyError: (409, "NamespaceNotEmptyException"),
    PlanNotFoundError: (404, "NoSuchPlanIdException"),
    PlanTaskNotFoundError: (404, "NoSuchPlanTaskException"),
    MissingFileError: (404, "NotFoundException"),
    MalformedLogError: (500, "ServiceFailureException"),
    DeltaProtocolError: (400, "BadRequestException"),
    CommitFailedError: (409, "CommitFailedException"),
    # The commit may have happened: clients must not delete the files that it names.
    OutcomeUnknownError: (500, "CommitStateUnknownException"),
    StoreError: (503, "ServiceUnavailableException"),
    StorageError: (503, "ServiceUnavailableException"),
    EndpointBusyError: (503, "ServiceUnavailableException"),
    SchemaVersionError: (500, "ServiceFailureException"),
    NotADatabaseError: (500, "ServiceFailureException"),
    MissingExtraError: (500, "ServiceFailureException"),
}


def answer_of(error: BaseException, kind: Kind) -> ErrorAnswer:
    """Return the answer to a request that raised an error; one that nobody expected is logged under an id."""
    if isinstance(error, Refusal):
        return error.answer
    if not isinstance(error, DeltaError):
        return ErrorAnswer(500, "InternalServerError", log_unexpected(error))
    if isinstance(error, RateLimitError):
        return ErrorAnswer(429, "TooManyRequestsException", str(error), error.retry_seconds)
    if isinstance(error, BadIcebergRequestError) and kind == "view":
        # The Java client raises this one as the exception that its views raise for such arguments.
        return ErrorAnswer(400, "IllegalArgumentException", str(error))
    status, type_ = _status_and_type(error, kind)
    if status >= 500:
        logger.warning("%s: %s", type(error).__name__, redact(str(error)))
    return ErrorAnswer(status, type_, str(error))


def _status_and_type(error: DeltaError, kind: Kind) -> tuple[int, str]:
    for ancestor in type(error).__mro__:
        if ancestor is TableNotFoundError:
            return 404, _MISSING[kind if kind in ("table", "view") else "table"]
        if ancestor in _ANSWERS:
            return _ANSWERS[ancestor]
    raise AssertionError("DeltaError itself has an answer")
