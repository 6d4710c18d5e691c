"""The three tools: how each is installed, set to its least overhead, and started. Their own source says how."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import ksflow

HERE = Path(__file__).parent
TASK = """Make the softmax of every row of a matrix fast. The largest of a row is subtracted first, so that nothing
overflows. The score is the time, lower is better. Keep the name and the arguments of `custom_kernel`."""
_PROBLEM = {
    "title": "Row softmax",
    "description": "Softmax of every row.",
    "languages": ["python"],
    "args": [
        {"name": "x", "dtype": "float32", "shape": "rows, cols", "role": "in"},
        {"name": "y", "dtype": "float32", "shape": "rows, cols", "role": "out"},
    ],
    "dims": ["rows", "cols"],
    "cases": {"tests": [{"rows": 64, "cols": 64}]},
    "baselines": ["initial.py"],
}


@dataclass(frozen=True)
class Job:
    """One run of one tool."""

    iterations: int
    seconds: float
    """What an evaluation takes."""
    url: str
    """The stub model's."""
    inputs: Path
    results: Path
    """The tool's working folder, empty at the start: all that lies there at the end is what it keeps."""
    extra: tuple[str, ...] = ()
    """More overrides for ksflow."""


@dataclass(frozen=True)
class Tool:
    """One of those compared."""

    name: str
    version: str
    package: str
    """On the package index; empty for ksflow, which runs in this environment."""
    settings: str
    """In words, for who reads the table."""
    command: Callable[[Job, str], list[str]]
    """Writes the inputs; what to start with the tool's Python."""
    evaluates_in_processes: bool = False
    """It starts the evaluator as a process for every candidate."""

    def install(self, folder: Path) -> str:
        """Its Python; the environment is made when it is missing. Raises RuntimeError with pip's last words."""
        if not self.package:
            return sys.executable
        home = folder / f"{self.package}-{self.version}"
        python = home / "bin/python"
        if not (home / "complete").exists():
            print(f"installing {self.package} {self.version} into {home} (minutes, once)", flush=True)
            wanted = f"{self.package}=={self.version}"
            for command in (
                [sys.executable, "-m", "venv", "--clear", str(home)],
                [str(python), "-m", "pip", "install", "-q", wanted],
            ):
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise RuntimeError(f"not installed: {last_line(done.stderr)}")
            (home / "complete").touch()
        return str(python)

    def environment(self, job: Job, fifo: Path) -> dict[str, str]:
        """Nothing of the user's but paths: no key, no proxy, no setting of a tool."""
        temporary = job.inputs / "tmp"
        temporary.mkdir()
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "LC_ALL") if name in os.environ}
        kept |= {"TMPDIR": str(temporary), "PEERS_SECONDS": str(job.seconds), "PEERS_DONE": str(fifo)}
        if self.package:
            return kept
        # The ksflow that is imported here, and its evaluator, `peers.stub`.
        path = f"{HERE.parent}{os.pathsep}{Path(ksflow.__file__).parents[1]}"
        model = {"LLM_URL": job.url, "LLM_MODEL": "stub", "KSFLOW_CACHE": str(job.results / "cache")}
        return kept | model | {"PYTHONPATH": path}


def _ksflow(job: Job, python: str) -> list[str]:
    problem = job.inputs / "softmax"
    (problem / "seeds").mkdir(parents=True)
    (problem / "problem.yaml").write_text(json.dumps(_PROBLEM))
    (problem / "statement.md").write_text(TASK)
    (problem / "reference.py").write_text("def ref_kernel(data):\n    x, y = data\n    return softmax(x, out=y)\n")
    shutil.copy(HERE / "initial.py", problem / "seeds")
    return [
        *(python, "-m", "ksflow", f"problem.path={problem}", "target=cpu"),
        *("llm=openai_compatible", "digester=none", "evaluator=fake"),
        *("evaluator._target_=peers.stub.StubEvaluator", f"evaluator.seconds={job.seconds}"),
        *(f"loop.evaluations={job.iterations}", "loop.confirm=false", *job.extra),
    ]


def _openevolve(job: Job, python: str) -> list[str]:
    config = {
        "checkpoint_interval": job.iterations,
        "log_level": "WARNING",
        "llm": {"api_base": job.url, "api_key": "none", "models": [{"name": "stub"}]},
        "prompt": {"system_message": TASK},
        "database": {"num_islands": 1},
        "evaluator": {"parallel_evaluations": 1, "cascade_evaluation": False},
    }
    file = job.inputs / "config.yaml"
    file.write_text(json.dumps(config))
    shutil.copy(HERE / "initial.py", job.inputs)
    shutil.copy(HERE / "stub.py", job.inputs)
    return [
        *(python, "-m", "openevolve.cli", str(job.inputs / "initial.py"), str(job.inputs / "stub.py")),
        *("--config", str(file), "--output", str(job.results), "--iterations", str(job.iterations)),
    ]


def _shinka(job: Job, python: str) -> list[str]:
    shutil.copy(HERE / "initial.py", job.inputs)
    shutil.copy(HERE / "stub.py", job.inputs / "evaluate.py")
    settings = {
        "evo.llm_models": json.dumps([f"local/stub@{job.url}"]),
        "evo.llm_dynamic_selection": "none",
        "evo.llm_kwargs": json.dumps({"temperatures": [0.0], "max_tokens": 4096}),
        "evo.embedding_model": "none",
        "evo.meta_rec_interval": "none",
        "evo.patch_types": '["diff"]',
        "evo.patch_type_probs": "[1.0]",
        "evo.task_sys_msg": TASK,
        "db.num_islands": "1",
    }
    generations = job.iterations + 1  # it counts the initial program
    return [
        *(python, "-m", "shinka.cli.run", "--task-dir", str(job.inputs), "--results_dir", str(job.results)),
        *("--num_generations", str(generations), "--no-verbose"),
        *("--max-evaluation-jobs", "1", "--max-proposal-jobs", "1", "--max-db-workers", "1"),
        *(word for name, value in settings.items() for word in ("--set", f"{name}={value}")),
    ]


def last_line(text: str) -> str:
    """What a program said last, in at most 300 characters."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][-300:] if lines else "it said nothing"


TOOLS = {
    "ksflow": Tool(
        "ksflow",
        ksflow.__version__,
        "",
        "selector, designer and writer by the model (5 calls for 3 candidates), no digester, no confirmation; every "
        "kernel and every model call committed before it is used; the evaluator runs inside its process",
        _ksflow,
    ),
    "openevolve": Tool(
        "OpenEvolve",
        "0.4.0",
        "openevolve",
        "1 island, diffs, 1 worker process, no cascade, no model feedback, no embeddings, warnings only; one "
        "checkpoint at the end, of the candidates still in its grid (a crash before it loses all); the evaluator runs "
        "inside the worker",
        _openevolve,
    ),
    "shinka": Tool(
        "ShinkaEvolve",
        "0.0.7",
        "shinka-evolve",
        "1 island, diffs, 1 proposal, 1 evaluation and 1 database job at a time, one fixed model, no embeddings, no "
        "novelty judge, no meta summaries, not verbose; the evaluator is a bare Python process for every candidate",
        _shinka,
        evaluates_in_processes=True,
    ),
}
