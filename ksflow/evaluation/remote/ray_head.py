"""A Ray cluster of this machine, for one run: `python -m ksflow.evaluation.remote.ray_head OPTIONS`, which ends with
its input.

It is a process of its own so that Ray's processes, and the workers below them, inherit an explicit environment.
"""

import json
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping

from ksflow.errors import ConfigError, one_line
from ksflow.evaluation.processes import scratch
from ksflow.evaluation.processes.child_environment import child_environment
from ksflow.evaluation.processes.deadline import end_process, killed_after
from ksflow.records import Json

_STORE_BYTES = 80 << 20
"""Jobs and verdicts are small. Ray would take a third of the machine's memory."""
_SYSTEM = {"prestart_worker_first_driver": False, "enable_worker_prestart": False}
_STARTS_S, _ENDS_S = 300.0, 20.0


class RayHead:
    """A cluster of this machine. It ends with this object, and with this process however that ends. ConfigError."""

    def __init__(self, options: Json, environment: Mapping[str, str]) -> None:
        """options: as `ray.init` takes them; environment: what its processes see beside the usual list."""
        with tempfile.TemporaryFile() as words:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "ksflow.evaluation.remote.ray_head", json.dumps(options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                env=child_environment(environment),
                cwd="/",
                start_new_session=True,  # Ctrl-C is for the run alone
            )
            assert process.stdout
            self._process = process
            self.close = weakref.finalize(self, end_process, process, _ENDS_S)
            with killed_after(process, _STARTS_S) as watch:
                self.address = process.stdout.readline().decode().strip()
            if not self.address:
                self.close()
                if watch.expired:
                    raise ConfigError(f"Ray does not start on this machine: no word of it in {_STARTS_S:g} s")
                words.seek(0)
                why = words.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
                raise ConfigError(f"Ray does not start on this machine: {one_line(why, 300)}")

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None


def main() -> None:
    """Start, say the address, and wait for the end of the input."""
    import ray

    places = {"_node_ip_address": "127.0.0.1", "_temp_dir": str(scratch.make_folder())}
    options = {"include_dashboard": False, "log_to_driver": False, "object_store_memory": _STORE_BYTES}
    resources = json.loads(sys.argv[1])
    system = {**_SYSTEM, "worker_maximum_startup_concurrency": resources["num_cpus"]}
    context = ray.init("local", _system_config=system, **places, **options, **resources)
    sys.stdout.write(f"{context.address_info['gcs_address']}\n")
    sys.stdout.flush()
    sys.stdin.read()
    ray.shutdown()


if __name__ == "__main__":
    main()
