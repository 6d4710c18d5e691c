"""Kernels that must not win, must do no harm, or must not be accused; a file is a test."""
