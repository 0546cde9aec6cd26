"""Values of calls and runs: results, keys, records, and calls that wait."""
