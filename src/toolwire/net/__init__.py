"""The I/O layer, the only code with sockets, disks and clocks: model clients, stores, drivers."""
