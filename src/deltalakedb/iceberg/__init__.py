"""Iceberg tables, natively and as another view of Delta tables."""
