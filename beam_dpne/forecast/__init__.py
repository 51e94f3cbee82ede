"""Forecasts of a release before any budget is spent, from public text and a stated number of users."""
