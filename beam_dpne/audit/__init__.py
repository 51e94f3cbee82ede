"""Attacks on the mechanisms: plain runs of the product on made-up data.

- `games` has what a game is and what it claims, and the games of noisy numbers: n-gram probabilities
  and numbers of users. `text_games` are the worst cases of n-grams and set unions. Each has planted
  mistakes.
- `auditing` plays all games of a plan, and has the lower bounds on ε that their runs show.
"""
