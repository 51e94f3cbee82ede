"""The command line: options, programs, and what a person sees of a run."""
