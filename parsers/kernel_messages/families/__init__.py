"""The families of kernel messages, one file for each kind of hardware or subsystem."""
