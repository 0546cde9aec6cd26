"""Repair a model's arguments by their schema: wrappers, types and spellings."""
