"""The benchmark harness: this package and its peers on the same generated tables, in one run."""
