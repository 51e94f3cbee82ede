"""Benchmarks: what the pipelines cost, beside a floor that has no Beam in it."""
