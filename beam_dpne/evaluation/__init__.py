"""Evaluation of releases against the private data they came from, for the operator and experiments.

Nothing that this package computes is private: coverage, numbers of spurious n-grams and plots are
as secret as the data. The package counts over arrays in memory and imports no transform that it
judges. An input must fit in memory: it takes about 20 bytes for each token and length.
"""
