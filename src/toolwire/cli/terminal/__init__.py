"""Output and input on a terminal, for all commands."""
