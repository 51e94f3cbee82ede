"""Runs from parameters. Faces give values by name, and are told what to show.

- `programs` names the groups of parameters of each program, and `parameters` defines those that are not
  of a plan or of the reading room. `made` makes objects of values.
- `inputs` has the files of an input, how they are read and tokenized; `preparing` all that a run checks
  before it reads them as a whole, and `checking` what it would read.
- `failures` has the failure log.
- `running` publishes a release, or gives it back in memory, and keeps its budget (`budgets`): on this
  machine without Beam (`local`), or on a runner of Beam (`engine`). `showing` is what a face shows
  meanwhile, and `console` how it is shown on this machine.
- `planning`, `evaluating` and `accounting` have what is asked before and after runs, by the parameters
  of `asking`.
"""
