"""Exports of a release in the formats of other systems.

An export reads a release and nothing else, so it is as public as the release and costs no budget.
"""
