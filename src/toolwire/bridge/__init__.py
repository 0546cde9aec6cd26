"""From one wire to another: fit a request to its target, bring the answer back, report every loss."""
