"""Records of the gateway's work: request log, metrics, traces, usage, recordings; secrets are redacted."""
