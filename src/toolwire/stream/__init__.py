"""Decode bytes into documents: SSE and NDJSON framing, strict JSON, broken JSON, and partial JSON. Sans-IO.

Every decoder here gives the same result for any chunking of its input, in time linear in the input.
"""
