"""Checks of proposed commits: the rules of the protocol and of the table, and conflicts with other commits."""
