"""The FileIO that PyIceberg reads and writes a table's files with: its settings, and watched or refused writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn

from pyiceberg.io import FileIO, OutputFile, load_file_io

from deltalakedb.exceptions import NotWritableError
from deltalakedb.iceberg.locations import from_iceberg, open_file
from deltalakedb.storage.location import parse_location
from deltalakedb.storage.options import cloud_environment

if TYPE_CHECKING:
    from deltalakedb.operations.target import WrittenFiles

# The names of `deltalake`'s storage options, without a prefix, and what PyIceberg calls them.
_S3 = {
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
    "token": "s3.session-token",
    "region": "s3.region",
    "default_region": "s3.region",
    "endpoint": "s3.endpoint",
    "endpoint_url": "s3.endpoint",
    "endpoint_url_s3": "s3.endpoint",
    "skip_signature": "s3.anonymous",
    "virtual_hosted_style_request": "s3.force-virtual-addressing",
}
_ADLS = {
    "account_name": "adls.account-name",
    "storage_account_name": "adls.account-name",
    "account_key": "adls.account-key",
    "access_key": "adls.account-key",
    "storage_account_key": "adls.account-key",
    "client_id": "adls.client-id",
    "client_secret": "adls.client-secret",
    "tenant_id": "adls.tenant-id",
    "sas_token": "adls.sas-token",
    "storage_sas_token": "adls.sas-token",
    "token": "adls.token",
}
_GCS = {"oauth2_token": "gcs.oauth2.token", "token": "gcs.oauth2.token", "project_id": "gcs.project-id"}
_NAMES = {"s3": ("aws_", _S3), "az": ("azure_", _ADLS), "gs": ("google_", _GCS)}
_ICEBERG_PREFIXES = ("s3.", "adls.", "gcs.", "client.", "hdfs.")


def open_file_io(location: str, options: Mapping[str, str] | None) -> FileIO:
    """Return PyIceberg's FileIO for a table, with storage options in `deltalake`'s names or PyIceberg's.

    Properties of the table are not used: whoever may change them could send the credentials elsewhere.
    """
    return load_file_io(file_io_properties(location, options), location)


def file_io_properties(location: str, options: Mapping[str, str] | None) -> dict[str, str]:
    """Return storage options in PyIceberg's names; the environment supplies what is not given, as for Delta tables."""
    prefix, names = _NAMES.get(parse_location(from_iceberg(location), options).scheme, ("", {}))
    properties: dict[str, str] = {}
    for key, value in [*cloud_environment().items(), *(options or {}).items()]:
        name = names.get(key.lower().removeprefix(prefix))
        if name is not None:
            properties[name] = str(value)
        elif key.startswith(_ICEBERG_PREFIXES):
            properties[key] = str(value)
    return properties


def remember_writes(file_io: FileIO, written: WrittenFiles, options: Mapping[str, str] | None) -> FileIO:
    """Make a FileIO record each file that it creates, so that it is deleted if the transaction does not commit."""
    create = file_io.new_output

    def new_output(location: str) -> OutputFile:
        written.remember_path(*open_file(location, options))
        return create(location)

    return _replace_output(file_io, new_output)


def refuse_writes(file_io: FileIO, reason: str) -> FileIO:
    """Make a FileIO raise before it creates a file."""

    def new_output(location: str) -> NoReturn:  # noqa: ARG001  the signature is PyIceberg's
        raise NotWritableError(reason)

    return _replace_output(file_io, new_output)


def _replace_output(file_io: FileIO, new_output: Callable[[str], OutputFile]) -> FileIO:
    # PyIceberg asks for the class of a FileIO, so that an object around it would not be accepted.
    file_io.new_output = new_output  # type: ignore[method-assign, assignment]
    return file_io
