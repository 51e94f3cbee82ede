"""Attacks on the mechanisms: plain runs of the product on made-up data.

- `bounds` has the lower bounds on ε that runs with and without a user show.
- `games` has the two worlds of a game, its claim, and planted mistakes that its attack should notice.
- `worlds` are made-up corpora; `text_games` are the worst cases of n-grams and set unions, and
  `number_games` those of n-gram probabilities and of numbers of users.
- `auditing` plays all games of a plan, and `plots` draws what they show.
"""
