"""What breaks on another provider: rules over tools, and reports for people and machines."""
