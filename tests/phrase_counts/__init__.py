"""Tests of `beam_dpne.phrase_counts`."""
