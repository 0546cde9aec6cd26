"""Bytes into documents: SSE and NDJSON framing, strict JSON, broken JSON, and JSON that is still arriving. Sans-IO.

Every decoder here takes any cutting of its input and gives the same result, in time linear in the input.
"""
