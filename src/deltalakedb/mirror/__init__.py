"""Copies and compares the two logs: mirror, promote, detach, resolve, attach, follow, validate, repair, rebuild."""
