"""Documents of users: batches of them, tokenizers, and groups by user."""
