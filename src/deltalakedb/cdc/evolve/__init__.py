"""Schema changes of the source, followed in the lake."""
