"""Tests of `beam_dpne.bayesian`."""
