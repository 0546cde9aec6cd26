"""The settings of a gateway: values, notation, rules and credentials."""
