"""Directories, local and remote, and access to them."""
