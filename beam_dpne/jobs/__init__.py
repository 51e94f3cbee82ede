"""Runs from parameters: on this machine without Beam (`local`), or on a runner of Beam (`engine`)."""
