"""Transactions over many tables: what they read, what they propose, and how they commit or roll back."""
