"""Predicates: parsed, normalised, and compared with files."""
