"""The verbs: each makes the actions of one commit to a table, whether its log is in SQL or in files."""
