"""Differentially private n-gram probabilities with a public prior."""
