"""The source's messages and texts, decoded into Arrow rows."""
