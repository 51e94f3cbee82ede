"""The papers' experiments, run again: which runs there are, their measurement, tables and pictures.

Nothing here is private: figures are counted on the data themselves, under run keys that are public.
"""
