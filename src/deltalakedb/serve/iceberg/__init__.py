"""The Iceberg REST catalog: its endpoints over HTTP, above `deltalakedb.iceberg`."""
