"""What stands for a GPU of each platform: its driver, and the name that torch has for its tensors."""

from ksflow.sandbox.driver import Driver, Hip
from ksflow.sandbox.emulated_driver import Emulated


def open_driver(platform: str) -> Driver:
    """The driver of a platform: `cuda`, `hip`, or `emulated`."""
    if platform == "emulated":
        return Emulated()
    return Hip() if platform == "hip" else Driver()


def torch_device(platform: str) -> str:
    """Where torch has a platform's tensors."""
    return "cpu" if platform == "emulated" else "cuda"
