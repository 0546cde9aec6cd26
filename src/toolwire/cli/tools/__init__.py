"""`toolwire tools`: list, index, search and measure tools."""
