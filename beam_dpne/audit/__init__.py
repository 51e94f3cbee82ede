"""Attacks on the mechanisms: plain runs of the product on made-up data.

- `games` has what a game is, what it claims, and the lower bounds on ε that its runs show.
- `text_games` are the worst cases of n-grams and set unions, on made-up corpora, and `number_games`
  those of n-gram probabilities and of numbers of users; each has planted mistakes.
- `auditing` plays all games of a plan.
"""
