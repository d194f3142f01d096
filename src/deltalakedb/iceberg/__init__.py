"""Iceberg tables and views: an Iceberg REST catalog on the same SQL database, and PyIceberg in the same process."""
