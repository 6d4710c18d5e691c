"""A Ray cluster of this machine, for one run, in a process of its own, which ends with its input.

So Ray's processes, and the workers below them, inherit an explicit environment.
"""

import contextlib
import json
import os
import sys
from collections.abc import Mapping

from ksflow.errors import ConfigError, one_line
from ksflow.evaluation.processes import scratch, wire
from ksflow.evaluation.processes.server_process import ServerProcess
from ksflow.records import Json

_STORE_BYTES = 80 << 20  # jobs and verdicts are small; Ray would take a third of the machine's memory
_SYSTEM = {"prestart_worker_first_driver": False, "enable_worker_prestart": False}
_STARTS_S = 300.0


class RayHead(ServerProcess):
    """A cluster of this machine. Raises ConfigError if Ray does not start."""

    ends_within_s = 20.0

    def __init__(self, options: Json, environment: Mapping[str, str]) -> None:
        """options: as `ray.init` takes them; environment: what its processes see beside the usual list."""
        super().__init__("ksflow.evaluation.remote.ray_head", environment, json.dumps(options))
        try:
            self.address = str(self.ask({}, _STARTS_S)["address"])
        except wire.Closed as error:
            why = str(error).strip().rpartition("\n")[2]
            raise ConfigError(f"Ray does not start on this machine: {one_line(why, 300)}") from error


def main() -> None:
    """Start, answer with the address, and wait for the end of the input."""
    answers = os.dup(1)
    os.dup2(2, 1)  # for what Ray prints
    asked = wire.receive(0)
    import ray

    places = {"_node_ip_address": "127.0.0.1", "_temp_dir": str(scratch.make_folder())}
    options = {"include_dashboard": False, "log_to_driver": False, "object_store_memory": _STORE_BYTES}
    resources = json.loads(sys.argv[1])
    system = {**_SYSTEM, "worker_maximum_startup_concurrency": resources["num_cpus"]}
    context = ray.init("local", _system_config=system, **places, **options, **resources)
    wire.send(answers, {"id": asked["id"], "address": context.address_info["gcs_address"]})
    with contextlib.suppress(wire.Closed):
        wire.receive(0)
    ray.shutdown()


if __name__ == "__main__":
    main()
