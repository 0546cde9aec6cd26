"""Rows of facts about models and vendors, their lookup, and lists of models."""
