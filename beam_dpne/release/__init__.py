"""A release: its ledger, its files, and how they are published and read back."""
