"""Iceberg's formats: the metadata of tables and views."""
