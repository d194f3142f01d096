"""Bytes: locations, credentials, and files on local disk or in an object store."""
