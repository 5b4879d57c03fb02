"""Adapters that feed leased rows to trainers, one module per trainer.

A trainer's package is imported when a function needs it, never when the module is
imported. `rows` and `feed` hold what all of them share: the rules that make a row
fit for training, and the leasing of one batch after another.

Shapes in the docstrings: T has one entry per token, R = T[p:] (the response, from
the first trained token on), N = T[1:] (next-token). See docs/trainers.md.
"""
