"""`SpoolEvaluator`: asks for verdicts through a folder. Whoever has the machine runs `python -m ksflow worker FOLDER`.

Runs nothing. Where the compiler of a GPU kernel is here, the kernel is compiled before it is sent. What comes back is
data, checked before it is believed: a result can make this machine do nothing but record it.
`ksflow.evaluation.remote.job_store` has the folder's format, and what it does not cover.
"""

from dataclasses import replace

from ksflow.errors import ConfigError
from ksflow.evaluation import compilers
from ksflow.evaluation.judge import VERSION
from ksflow.evaluation.remote import job_store
from ksflow.evaluation.remote.job_client import JobClient
from ksflow.evaluation.remote.job_store import JobStore
from ksflow.evaluation.sandbox.levels import probe
from ksflow.kernels.languages import ON_DEVICE
from ksflow.protocols import Evaluator
from ksflow.records import Evaluation, Evidence, Kernel, Problem, Target, Trial, Verdict


class SpoolEvaluator(Evaluator):
    """Judges kernels on a machine that shares a folder with this one, or to and from which it is copied.

    folder: relative to where the program was started; no URL. patience_minutes: give up after so long without any sign
    of a worker, a day unless told otherwise; null waits on. devices: kernels that may be out at the same time, for
    several workers. compile_first: a GPU kernel that the compiler of this machine refuses is a compile error at once,
    and never sent.
    """

    judge = fingerprint = ""

    def __init__(
        self,
        target: Target,
        folder: str = "runs/spool",
        patience_minutes: float | None = 1440.0,
        devices: int = 1,
        compile_first: bool = True,
    ) -> None:
        if devices < 1 or (patience_minutes is not None and patience_minutes <= 0):
            raise ConfigError("evaluator.devices must be at least 1, evaluator.patience_minutes positive or null")
        self.target, self.devices, self.compile_first = target, devices, compile_first
        self.spool = JobStore(job_store.folder_path(folder).absolute())
        self.judge = f"local-{VERSION}"
        self.fingerprint = target.fingerprint
        self._client = JobClient(self.spool, target, patience_minutes)

    def __call__(self, problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        """A worker's verdict, however long it takes; or that the kernel does not compile, without asking any.

        Raises ConfigError: folder not usable, patience at its end.
        """
        if refused := self._refused(problem, kernel):
            return refused
        return self._client.ask(job_store.job(self.judge, problem, kernel, versus, self.target), problem)

    def prepare(self, problem: Problem, kernel: Kernel) -> None:
        """Compile ahead; what was made is found again."""
        self._refused(problem, kernel)

    def _refused(self, problem: Problem, kernel: Kernel) -> Evaluation | None:
        """What a worker's compiler would say against a kernel; None where nothing does, or only a worker can tell."""
        if not self.compile_first or not problem.accepts_language(kernel.language) or kernel.language not in ON_DEVICE:
            return None
        try:
            built = compilers.build(problem, kernel, self.target)
        except (ConfigError, OSError):  # the compiler is not here, or not for this target, or has no room
            return None
        if not compilers.source_is_wrong(built):
            return None
        compiler = compilers.versions(self.target).get(kernel.language, "")
        evidence = Evidence(log=built.log, more={"compiled_before_sending": compiler})
        evaluation = Evaluation(Verdict.COMPILE, built.reason, evidence=evidence, isolation=probe().level)
        return replace(evaluation, target=self.fingerprint, judge=self.judge)

    def start(self) -> None:
        """Have the folder, with the code that workers run. Raises ConfigError where it cannot be written."""
        self._client.make_folder()
