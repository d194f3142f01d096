"""The Postgres server: its publication, slots, snapshots, types, and ranges of its log."""
