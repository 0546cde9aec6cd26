"""Records of what the gateway does: request log, metrics, traces, usage, recordings; secrets are redacted."""
