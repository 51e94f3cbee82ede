"""The command line `beam-dpne`.

- `start` is where the program begins; `commands` has the list of commands, and `main` the exit status
  and the line that is printed of an error.
- `parameters`, `settings` and `release_settings` define the parameters that are not those of a plan or
  of the reading room; `parsing` makes the command line of a command from its groups of parameters.
- `programs` has the commands that publish a release, `jobs` their steps, and `budgets` their budget.
- `planning`, `evaluating`, `auditing` and `releases` have the other commands.
- `runners` has Beam's options, runners and temporary folders, `display` the progress line and the
  printed tables, and `failures` the reason that is printed of a failed run, and the failure log.
"""
