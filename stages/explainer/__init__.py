"""What says which features a kernel has: one file a variant."""
