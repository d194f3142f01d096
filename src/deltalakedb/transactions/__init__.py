"""Transactions over many tables: what they see, what they propose, and how they end."""
