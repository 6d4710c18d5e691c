"""ksflow: a kernel scientist you configure instead of program."""

__version__ = "0.1.0"
