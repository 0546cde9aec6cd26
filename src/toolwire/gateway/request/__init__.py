"""A client's request: its path, its body, its fields, and the objects that requests share."""
