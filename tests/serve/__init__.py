"""The endpoint over real HTTP: routes, transactions, many clients, and how it is stopped."""
