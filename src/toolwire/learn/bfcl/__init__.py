"""The Berkeley Function Calling Leaderboard: its entries as canonical values, its checker, and the evaluation of a model.

data files → `entries` (tools, messages, expected calls) → `evaluation` (ask a model) → `judgement` (the leaderboard's
own checker). A multi-turn entry is one of `conversations` with the simulated classes of the wheel.
"""
