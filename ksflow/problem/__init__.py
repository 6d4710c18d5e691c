"""A problem folder becomes a `Problem`; folders of other formats are read by `formats`."""
