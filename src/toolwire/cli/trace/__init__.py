"""`toolwire trace`: record, show and replay traffic."""
