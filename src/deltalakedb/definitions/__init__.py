"""What a new table is: its columns, features, protocol and folder; how people write them down."""
