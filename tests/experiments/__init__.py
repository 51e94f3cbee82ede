"""Tests of the programs that reproduce the papers."""
