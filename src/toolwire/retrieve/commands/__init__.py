"""Commands of this machine as tools: read from man pages and shell completions, without running anything."""
