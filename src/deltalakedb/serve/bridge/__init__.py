"""The Spark bridge's side of the endpoint: tables as delta-spark sees them, over HTTP."""
