"""The nouns: frozen records that cannot contradict themselves, and the arithmetic that belongs to them.

No I/O, no configuration, no third-party import. Times are microseconds (`_us`), lower is better. A gain is
`before / after - 1` in percent: 100 means twice as fast. Model answers are parsed into the same classes.
"""

from ksflow.records.base import Json, Record, Scalar, by_number, digest, geomean, round_significant
from ksflow.records.calls import Call, Question, Reservation
from ksflow.records.comparisons import ANOTHER_DAY, SELF_TIMED, Claim, Comparison, Ratio, Speedup
from ksflow.records.evaluations import Approval, Evaluation, Kept, Key, Timing, Verdict
from ksflow.records.evidence import (
    Cached,
    CheckedCase,
    Clocks,
    CompiledKernel,
    EarlierVerdict,
    Evidence,
    HeldOut,
    ProfilePage,
    Repeat,
    RooflineCase,
    SanitizerFinding,
    TimedCase,
)
from ksflow.records.kernels import C_TYPES, FILE_NAME, RESERVED_NAMES, Kernel
from ksflow.records.notes import Document, Explanation, Feature, Note, Passage, Presence, Statement, Status
from ksflow.records.parsing import as_json, misfits, parse
from ksflow.records.plans import Experiment, Plan, PlannedRound, RoundStep, portfolio
from ksflow.records.population import Material, Population
from ksflow.records.problems import (
    Arg,
    Case,
    Check,
    Limits,
    Problem,
    Seed,
    Target,
    check_inside,
    name_without_precision,
)
from ksflow.records.proofs import Engaged, Proof, Way, amdahl
from ksflow.records.scale import Contradiction, Scale, measured_ratio
from ksflow.records.trials import (
    Cost,
    Draft,
    Finding,
    Origin,
    Review,
    Rival,
    Selection,
    Step,
    Trial,
    base_of,
    first_attempt,
)
