"""Statistics of files, and the bounds that planning compares."""
