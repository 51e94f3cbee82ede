"""The command line `beam-dpne`.

- `start` is where the program begins, and `loading` has what is done while modules are loaded.
- `main` has the list of commands, the exit status, and the line that is printed of an error.
- `options` and `options_by_command` have the options with their help texts.
- `plans`, `programs`, `evaluating` and `msnbc` have the commands.
- `jobs` has the steps of a job in their order; `runners` has Beam's options and runners.
- `run_folders` has the temporary folder of a run.
- `display` has the progress line and the printed tables.
- `failures` has the reason that is printed of a failed run, and the failure log.
"""
