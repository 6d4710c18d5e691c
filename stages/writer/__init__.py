"""Writers: an experiment becomes a whole new kernel."""
