"""The parsers of foreign bytes, each with the damaged input that a seed makes and what is done with the result."""

from __future__ import annotations

from tests.fuzz import of_captures, of_iceberg, of_logs, of_requests, of_texts  # noqa: F401  they register their parsers
from tests.fuzz.cases import PARSERS, Parser

__all__ = ["PARSERS", "Parser"]
