"""Exports of a release in the formats of other systems, and its record for a public registry.

An export reads a release and nothing else, so it is as public as the release and costs no budget.
"""
