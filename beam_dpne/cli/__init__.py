"""The command line `beam-dpne`.

- `main` is where the program begins: its exit status, the line that it prints of an error, and the
  failure log. `commands` has the list of commands, and makes their command lines; `help` shows them.
- `parameters` (of runs) and `settings` (of the other commands) define the parameters that are not those
  of a plan or of the reading room.
- `inputs` has the files of an input, how they are read and tokenized.
- `programs` has the commands that publish a release, and keeps their budget; `runners` has Beam's
  options, runners and temporary folders.
- `plans` has `plan` and `audit`; `releases` has `evaluate`, `account`, `export` and `report`.
- `display` has the progress line and the printed tables.
"""
