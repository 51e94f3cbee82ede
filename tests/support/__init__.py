"""Helpers of several tests, each once."""
