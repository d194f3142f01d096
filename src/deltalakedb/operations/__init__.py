"""What the verbs do to a table: each makes the actions of one commit, wherever the table's log is kept."""
