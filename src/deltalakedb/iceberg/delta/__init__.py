"""Delta tables as Iceberg clients see them: made from SQL rows at the moment they are asked for."""
