"""Sources of tools, requests and texts that a command line names."""
