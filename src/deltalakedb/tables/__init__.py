"""The parts of DeltaTable: its backings, and its state, files, rows, changes and maintenance."""
