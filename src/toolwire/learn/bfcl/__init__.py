"""The Berkeley Function Calling Leaderboard: its entries as canonical values, its checker, and the evaluation of a model.

data files → `entries` (tools, messages, expected calls) → `evaluation` (ask a model) → `checker` (the leaderboard's own)
"""
