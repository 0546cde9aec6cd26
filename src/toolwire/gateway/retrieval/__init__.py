"""Selection among many tools for models with `retrieve`."""
