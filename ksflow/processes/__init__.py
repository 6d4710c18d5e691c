"""Child processes: how they are started, spoken to, given cores and a device, and cleaned up after."""
