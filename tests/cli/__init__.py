"""The command line, called as users call it."""
