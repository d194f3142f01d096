"""Changes applied to the tables of the lake, exactly once."""
