"""The life of a capture: settings, start, batches, status, stop."""
