"""Tests of `beam_dpne.ngrams`."""
