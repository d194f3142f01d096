"""A native Iceberg table as a Delta table: what unmodified Delta readers see of its mirror."""
