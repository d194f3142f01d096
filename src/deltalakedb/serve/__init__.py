"""The serving app (`dl serve`): one Starlette application, a router for each kind of client."""

from typing import TYPE_CHECKING

from deltalakedb.runtime.lazy import lazy_names

if TYPE_CHECKING:
    from deltalakedb.serve.app import create_app
    from deltalakedb.serve.server import Endpoint, LocalEndpoint

__all__ = ["Endpoint", "LocalEndpoint", "create_app"]

__getattr__ = lazy_names(
    __name__,
    {
        "Endpoint": "deltalakedb.serve.server",
        "LocalEndpoint": "deltalakedb.serve.server",
        "create_app": "deltalakedb.serve.app",
    },
)
