"""Tests of `beam_dpne.audit`."""
