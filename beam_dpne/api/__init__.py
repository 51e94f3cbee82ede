"""Calls from Python: a release of a frame or of files, on this machine, without Beam and without files.

- `calls` has the calls, and `calls.pyi` their keywords for type checkers, which `docs/make_calls.py`
  makes from the definitions of the parameters (`keywords`).
- `failing` has what becomes of an error.
"""
