"""Releases under fixed keys: what changes them must raise the mechanism version."""
