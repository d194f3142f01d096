"""Plans scans of Iceberg tables from SQL rows."""
