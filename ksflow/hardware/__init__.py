"""What is known of a chip: targets, this machine's CPU and tools, rooflines, compiler reports, what work costs."""
