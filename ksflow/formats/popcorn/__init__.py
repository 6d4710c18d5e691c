"""A task as GPU MODE's own service has it."""
