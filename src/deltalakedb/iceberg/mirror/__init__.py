"""Native Iceberg tables shown to Delta readers: their history mirrored as `_delta_log` in the table's location."""
