"""Unmodified Iceberg clients against `dl serve --iceberg`."""
