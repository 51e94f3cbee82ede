"""The command line `beam-dpne`.

- `main` is where the program begins: its exit status, and the line that it prints of an error.
  `commands` has the list of commands, and makes their command lines; `help` shows them.
- `settings` defines the parameters of commands that no other face has.
- `runs` has the commands that publish one: `jobs` runs them.
- `plans` has `plan` and `audit`, `checks` has `check`, `comparing` has `compare`, and `releases` has
  `evaluate`, `account`, `export` and `report`.
- `display` has the printed tables.
"""
