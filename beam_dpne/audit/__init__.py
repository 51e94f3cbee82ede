"""Attacks on the mechanisms, by the kernels of the product on made-up data.

- `bounds` has the lower bounds on ε that runs with and without a user show.
- `games` has the two worlds of a game, its claim, and planted mistakes that its attack should notice.
- `copies`, `copied_rules` and `copied_runs` make many runs of n-grams at once, right or with a mistake
  of `variants`; `observations` are their statistics.
- `gram_games`, `union_games`, `bayesian_games` and `count_games` are the worst cases of each program.
- `auditing` plays all games of a plan, and `plots` draws what they show.
"""
