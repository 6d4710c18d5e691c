"""The driver and the torch device of each GPU platform."""

from ksflow.evaluation.sandbox.driver import Driver, HipDriver
from ksflow.evaluation.sandbox.emulated_driver import Emulated


def open_driver(platform: str) -> Driver:
    """Return the driver of a platform: `cuda`, `hip`, or `emulated`."""
    if platform == "emulated":
        return Emulated()
    return HipDriver() if platform == "hip" else Driver()


def torch_device(platform: str) -> str:
    """Return torch's device for a platform."""
    return "cpu" if platform == "emulated" else "cuda"
