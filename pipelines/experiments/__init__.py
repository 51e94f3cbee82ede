"""The papers' experiments, run again: lists of runs, their measurement, tables and pictures.

Nothing here is private: figures are counted on the data themselves, under run keys that are public.
"""
