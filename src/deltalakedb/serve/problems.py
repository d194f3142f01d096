"""Error answers of the endpoint: every exception has one status, and a JSON body with its name and message."""

from __future__ import annotations

import logging
import uuid

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from deltalakedb.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    EndpointBusyError,
    EndpointError,
    FilesVacuumedError,
    GoneError,
    MissingExtraError,
    NotADatabaseError,
    NotPermittedError,
    NotWritableError,
    OutcomeUnknownError,
    RateLimitError,
    SchemaVersionError,
    StoreError,
    TableExistsError,
    TableLockedError,
    TableNotFoundError,
    VersionNotFoundError,
    redact,
)
from deltalakedb.runtime.caller import current_caller

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1
"""The value of `Retry-After`."""

# The nearest class along an exception's ancestors decides, so a new error is answered like its base class.
_STATUS: dict[type[DeltaError], int] = {
    DeltaError: 422,
    TableNotFoundError: 404,
    VersionNotFoundError: 404,
    TableExistsError: 409,
    NotPermittedError: 403,
    CommitFailedError: 409,
    # Not 409: to Spark that means that another writer has made this version.
    DeltaProtocolError: 422,
    FilesVacuumedError: 422,
    NotWritableError: 422,
    TableLockedError: 422,
    GoneError: 410,
    # Repeating these is safe, and returns the outcome, because commits carry a token.
    OutcomeUnknownError: 503,
    StoreError: 503,
    EndpointBusyError: 503,
    SchemaVersionError: 500,
    NotADatabaseError: 500,
    EndpointError: 502,
    MissingExtraError: 500,
}


def status_of(error: DeltaError) -> int:
    """The HTTP status of an error."""
    return next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)


def problem(status: int, error: str, message: str, **about: str | int | None) -> Response:
    """An error answer, with further fields; secrets in the message are masked."""
    headers = {"Retry-After": str(RETRY_SECONDS)} if status == 503 else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse({"error": error, "message": redact(message), **about}, status, headers)


async def answer_error(_request: Request, error: Exception) -> Response:
    """The answer to a request that raised one of our own errors."""
    assert isinstance(error, DeltaError)
    return error_answer(error)


def error_answer(error: DeltaError) -> Response:
    """The answer that one of our own errors has."""
    status = status_of(error)
    if status >= 500:
        logger.warning("%s: %s", type(error).__name__, redact(str(error)))
    about: dict[str, str | int | None] = {}
    if isinstance(error, CommitFailedError):
        about = {"table": error.table, "version": error.version, "path": error.path}
    return problem(status, type(error).__name__, str(error), **about)


def refusal(why: BaseException | str) -> Response:
    """The answer to a request whose caller is not proven, or could not be looked up."""
    if isinstance(why, RateLimitError):
        # Not 429: the bridge's clients repeat requests that were answered 503.
        answer = error_answer(why)
        answer.headers["Retry-After"] = str(why.retry_seconds)
        return answer
    if isinstance(why, DeltaError):
        return error_answer(why)
    return problem(401, "UnauthorizedError", str(why))


def forbidden(message: str) -> Response:
    """The answer to a request that nobody may send."""
    return problem(403, "ForbiddenError", message)


def answer_unexpected(error: BaseException, request_id: str) -> Response:
    """The answer to a bug: the request's id, which finds the traceback in the log, and nothing that could be secret."""
    return problem(500, "InternalError", log_unexpected(error, request_id))


def log_unexpected(error: BaseException, request_id: str | None = None) -> str:
    """Log a bug with its traceback; return the message for the client, with the id of the request."""
    caller = current_caller()
    number = request_id or (caller and caller.request_id) or uuid.uuid4().hex
    trace = (type(error), error, error.__traceback__)
    logger.error("unexpected error %s: %s", number, redact(str(error)), exc_info=trace)
    return f"unexpected error {number} ({type(error).__name__}); the endpoint's log says more"
