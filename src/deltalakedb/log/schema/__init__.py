"""A table's schema: Delta's types, partition values, column mapping, schemas written as text."""
