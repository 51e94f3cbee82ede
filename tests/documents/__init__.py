"""Tests of `beam_dpne.documents`."""
