"""Judging releases against the private data they came from: for the operator, and for experiments.

Nothing that this package computes is private: coverage, counts of spurious grams and plots are as
secret as the data. It counts by itself, over arrays in memory, and imports no transform that it
judges. An input must fit in memory: about 30 bytes a token and length.
"""
