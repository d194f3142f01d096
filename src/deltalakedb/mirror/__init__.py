"""Copies between the two logs: attach and follow read files into SQL, validate compares both."""
