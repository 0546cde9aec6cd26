"""Read JSON Schema of all drafts into nodes, and decide about the sets of values that nodes describe."""
