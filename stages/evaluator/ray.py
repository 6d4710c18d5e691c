"""`RayEvaluator`: verdicts as tasks of a Ray cluster, one GPU each. Compiles and runs nothing itself.

`ksflow.evaluation.remote.ray_client` asks and says what it does not cover; on the workers is the judge of
evaluator=local.
"""

from collections.abc import Mapping

from ksflow.errors import ConfigError, StageError
from ksflow.evaluation.judge import VERSION
from ksflow.evaluation.judge.evaluator import require_isolation
from ksflow.evaluation.remote import job_store
from ksflow.evaluation.remote.ray_client import ClusterSettings, RayClient
from ksflow.evaluation.sandbox.levels import LEVELS, LOWEST_FLOOR
from ksflow.protocols import Evaluator
from ksflow.records import Evaluation, Kernel, Problem, Target, Trial


class RayEvaluator(Evaluator):
    """Judges kernels on the machines of a Ray cluster that offer the target's name as a resource.

    address: of the cluster, as `10.0.0.1:6379`, or auto for the one on this machine; null starts one for this run, on
    this machine. devices: kernels that may be out at the same time. patience_minutes: give up after so long without a
    machine for them; null waits on. lease_minutes: a worker that judges for longer is given up, and another asked;
    null is the longest that the problem's limits allow. environment: variables that workers see beside Ray's own.
    isolation_floor: a worker whose sandboxes are weaker than this runs no kernels.
    """

    judge = fingerprint = ""

    def __init__(  # noqa: PLR0913 - what a user may set
        self,
        target: Target,
        address: str | None = None,
        devices: int = 1,
        patience_minutes: float | None = None,
        lease_minutes: float | None = None,
        environment: Mapping[str, str] | None = None,
        isolation_floor: str = LOWEST_FLOOR,
    ) -> None:
        require_isolation(isolation_floor, LEVELS[-1], "evaluator.")
        if devices < 1 or not all(limit is None or limit > 0 for limit in (patience_minutes, lease_minutes)):
            raise ConfigError("evaluator.devices must be at least 1, its limits in minutes positive or null")
        if address is not None and "://" in address:
            raise ConfigError(f"evaluator.address={address}: give host:port or auto, on a machine of the cluster")
        self.target, self.devices = target, devices
        self.judge = f"local-{VERSION}"
        self.fingerprint = target.fingerprint
        settings = ClusterSettings(
            address, devices, patience_minutes, lease_minutes, dict(environment or {}), isolation_floor
        )
        self.client = RayClient(target, settings)

    def __call__(self, problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        """A worker's verdict; its `wall_s` counts from the lease on. ConfigError: no cluster, no machine in time."""
        job = job_store.job(self.judge, problem, kernel, versus, self.target)
        try:
            return self.client.ask(job, problem)
        except ValueError as error:
            raise StageError("evaluator", f"the job cannot be written: {error}") from error

    def start(self) -> None:
        """Join the cluster, or start one. Raises ConfigError."""
        self.client.connect()
