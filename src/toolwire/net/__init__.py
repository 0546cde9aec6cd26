"""The only code with sockets, disks and clocks: model clients, stores, drivers."""
