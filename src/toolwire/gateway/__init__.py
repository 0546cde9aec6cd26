"""Every wire in front of every wire, over HTTP (extra `gateway`)."""
