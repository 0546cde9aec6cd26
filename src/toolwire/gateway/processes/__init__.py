"""The processes of a gateway: one server, or several workers on one port."""
