"""Change capture: the changes of a Postgres database become tables of the lake, whole transactions at a time."""
