"""Read LiteLLM's `config.yaml`: the settings that have a meaning here, and a report of all others."""
