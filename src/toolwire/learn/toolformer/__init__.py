"""Toolformer (Schick et al. 2023): a model mines the tool calls of plain texts that make the texts easier to predict."""
