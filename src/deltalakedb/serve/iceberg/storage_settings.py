"""Settings of the storage that clients may know: where an object store is and how to address it, never a secret."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from deltalakedb.catalog.storage_options import safe_options
from deltalakedb.serve.iceberg.call import Call, JsonObject
from deltalakedb.storage.options import cloud_environment

DELEGATION_HEADER = "x-iceberg-access-delegation"
_S3_SCHEMES = ("s3://", "s3a://", "s3n://")


class StorageSettings:
    """The settings of object stores, read once from the environment that this process reaches them with."""

    def __init__(self, environment: Callable[[], Mapping[str, str]] = cloud_environment) -> None:
        self._s3 = _s3_settings(environment())

    def of(self, call: Call, metadata: JsonObject) -> Mapping[str, str]:
        """Return the settings of the storage of a table, if the client asked for access to it; perhaps none."""
        is_s3 = str(metadata.get("location", "")).startswith(_S3_SCHEMES)
        return self._s3 if is_s3 and call.headers.get(DELEGATION_HEADER) else {}


def _s3_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return Iceberg's names and values of the settings that are safe to hand out; an unset one is absent."""
    # The same rule as for the options of a table in SQL: an endpoint with a password in it is left out.
    stored = safe_options({key.lower(): value for key, value in environment.items()})
    endpoint = stored.get("aws_endpoint_url") or stored.get("aws_endpoint")
    region = stored.get("aws_region") or stored.get("aws_default_region")
    settings = {"s3.endpoint": endpoint, "s3.region": region, "client.region": region}
    if endpoint:
        # obstore puts the bucket into the path unless it is told otherwise.
        virtual = environment.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "false").lower() == "true"
        settings["s3.path-style-access"] = "false" if virtual else "true"
    return {key: value for key, value in settings.items() if value}
