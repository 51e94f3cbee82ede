"""Documents of users: rows by name, tokenizers, and one batch per user group."""
