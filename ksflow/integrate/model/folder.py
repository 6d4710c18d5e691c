"""A region of a model as the files of a problem: reference, seeds, statement, cases, recorded contents and facts."""

import inspect
import json
import os
import re
import tempfile
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import yaml

from ksflow import home
from ksflow.errors import ConfigError, catch_foreign
from ksflow.evaluation.judge import contents
from ksflow.evaluation.judge.elements import same_bits
from ksflow.formats.isolated import IsolatedFailure, run_isolated
from ksflow.formats.kernel.arrays import as_arrays, as_tensors
from ksflow.integrate.model import TEXTS
from ksflow.integrate.model.calls import Case
from ksflow.integrate.model.graph import Forward
from ksflow.integrate.model.profile import PRECISIONS, Region
from ksflow.integrate.model.user_file import UserModel
from ksflow.kernels.source.expressions import LONGEST, calculate
from ksflow.records import C_TYPES, Json

_KEPT_BYTES = 4 << 20
"""Of a case's own contents."""
_TIMEOUT_S = 300.0


class Folder:
    """A region as the files of a problem."""

    command, what = "model profile", "module's own forward"
    differs = "computes otherwise for {} than for other inputs"
    tools = "from ksflow.evaluation.judge import bounds, contents"

    def __init__(self, user: UserModel, region: Region, cases: Sequence[Case], forward: Forward) -> None:
        self._user, self._region, self._calls = user, region, cases
        self._cases = list({case.shapes: case for case in reversed(cases)}.values())[::-1]
        first = self._cases[0]
        words, self._read, self._computed = forward.words, forward.read, forward.computed
        self.inout = [
            word for word, tensor in zip(words, first.call.inputs, strict=False) if tensor.name in first.call.written
        ]
        """The arguments that it changes in place."""
        outputs = [f"y{index}" if len(first.call.outputs) > 1 else "y" for index in range(len(first.call.outputs))]
        self._names = [*words, *(f"{name}_out" if name in words else name for name in outputs)]
        self._count = len(words)
        self._kinds = [tensor.dtype for tensor in first.every]
        self._dims: dict[tuple[int, ...], str] = {}
        """The sizes that a dimension has in each case -> what it is called, after the first tensor that has it."""
        self._shapes: list[list[str]] = []
        """Of each tensor, with the names of dimensions."""
        for index, name in enumerate(self._names):
            several = zip(*(case.shapes[index] for case in self._cases), strict=True)
            self._shapes.append(
                [
                    "1" if set(sizes) == {1} else self._dims.setdefault(sizes, self._free(f"{name}_{axis}"))
                    for axis, sizes in enumerate(several)
                ]
            )
        device = f"    device = {words[0]}.device\n" if "device" in forward.body else ""
        self._imports = "".join(f"import {name}\n" for name in forward.imports)
        self._forward = f"def forward({', '.join(words)}):\n{device}{forward.body}"
        if unknown := [kind for kind in self._kinds if kind not in C_TYPES]:
            raise ValueError(f"has {unknown[0]}, which no kernel takes")
        every = zip(*(case.every for case in cases), strict=True)
        lying = [contents.common_strides([(tensor.stride, tensor.shape) for tensor in same]) for same in every]
        rows = [contents.describe_contents([case.data[index] for case in cases]) for index in range(self._count)]
        rows += [{"dtype": kind} for kind in self._kinds[self._count :]]
        self._met = [about | how for about, how in zip(rows, lying, strict=True)]

    def _free(self, word: str) -> str:
        """The word, or one like it that is no tensor's name."""
        return self._free(f"{word}_") if word in self._names else word

    def expect_same(self) -> None:
        """Try the function on each call. ValueError where it does not compute what it did then."""
        names: dict[str, Any] = {"torch": torch, "as_arrays": as_arrays, "as_tensors": as_tensors}
        exec(self._forward, names)  # the person's own code
        for case in self._calls:
            data = [tensor.clone() for tensor in case.data]
            answer = names["forward"](*data)
            several = answer if isinstance(answer, tuple | list) else (answer,)
            ours = [data[self._names.index(word)] for word in self.inout]
            ours += several[len(several) - len(case.call.outputs) :]
            for own, other in zip(ours, case.answer, strict=True):
                if own.shape != other.shape or not torch.allclose(own, other, rtol=1e-2, atol=1e-3, equal_nan=True):
                    raise ValueError(self.differs.format(case.tensors[0]))

    def _reference(self) -> str:
        return TEXTS["REFERENCE"].format(
            command=self.command,
            what=self.what,
            kind=self._region.kind,
            file=self._user.file.name,
            forward=self._forward,
            imports=self._imports,
            tools=self.tools,
            met="".join(f"    {row},\n" for row in self._met),
            takes=", ".join(f"{dim}: int" for dim in self._dims.values()),
            shapes=", ".join(f"[{', '.join(shape)}]" for shape in self._shapes),
            count=self._count,
            oracle=self._oracle().rstrip(),
        )

    def _name(self) -> str:
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", self._region.title).lower()

    def _oracle(self) -> str:
        """What says in the reference how exact an answer has to be."""
        return TEXTS["ORACLE"].format(exact=self._exact())

    def _seeds(self) -> dict[str, str]:
        """The kernels that speed-ups are claimed against: file -> text."""
        mode = 'mode="max-autotune-no-cudagraphs", ' if self._user.gpu else ""
        compiled = f"\n\nforward = torch.compile(forward, {mode}dynamic=False)\n"
        words = {"what": self.what, "imports": self._imports, "forward": self._forward, "count": self._count}
        return {
            "00_eager.py": TEXTS["SEED"].format(how="", compiled="", **words),
            "01_compile.py": TEXTS["SEED"].format(how=", as torch.compile makes it", compiled=compiled, **words),
        }

    def _description(self) -> str:
        many = len(self._region.modules)
        return f"{many} modules of {self._user.file.name}, {100 * self._region.share:.3g} % of its time."

    def _exact(self) -> str:
        """Inputs for the bound, in words: what is less precise than the arithmetic is exact in it."""
        words = []
        for index, kind in enumerate(getattr(torch, name) for name in self._kinds[: self._count]):
            coarse = kind.is_floating_point and torch.finfo(kind).eps > torch.finfo(self._computed).eps
            wide = torch.float32 if {kind, self._computed} == {torch.float16, torch.bfloat16} else self._computed
            words.append(f"data[{index}].to({wide})" if coarse else f"data[{index}]")
        return f"[{', '.join(words)}]" if any(".to" in word for word in words) else f"data[:{self._count}]"

    def _expect_apart(self, reference: str, content: Json) -> None:
        """Try the reference in a fresh process on the smallest case. ConfigError where it does not work there."""
        case = min(content["cases"]["tests"], key=lambda case: sum(case.values()) - case["seed"])
        device = "cuda" if self._user.gpu else "cpu"
        with tempfile.TemporaryDirectory(prefix="ksflow-") as folder:
            file = Path(folder, "reference.py")
            file.write_text(reference, encoding="utf-8")
            order = {"reference": str(file), "case": {**case, "real": 0}, "device": device}
            try:
                fault = run_isolated("ksflow.integrate.model.rehearse", order, _TIMEOUT_S)
            except IsolatedFailure as error:
                fault = f"its reference does not run in a fresh process: {error}"
        if fault:
            raise ConfigError(f"{self._region.modules[0]} is no problem: {fault}")

    def write(self, out: Path, profile: Json) -> Path:
        """Write them below `out`; the folder. ConfigError where something else is there."""
        folder = out / self._name()
        if folder.exists() and not (folder / "region.json").is_file():
            raise ConfigError(f"{folder} is there and is no region of a model: say out=FOLDER")
        saved = self._contents()
        reference, content = self._reference(), self._spec(saved)
        self._expect_apart(reference, content)
        (folder / "seeds").mkdir(parents=True, exist_ok=True)
        spec = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=110)
        home.write(folder / "problem.yaml", spec.replace("\nbaselines:", f"\n{TEXTS['EXPERT']}baselines:"))
        home.write(folder / "reference.py", reference)
        home.write(folder / "statement.md", self._statement())
        for name, text in self._seeds().items():
            home.write(folder / "seeds" / name, text)
        home.write(folder / "region.json", json.dumps(self._facts(folder) | {"profile": profile}, indent=1) + "\n")
        torch.save(saved, folder / contents.KEPT)
        return folder

    def _contents(self) -> dict[str, list[list[torch.Tensor]]]:
        """Different contents of calls of each case that is shown, as many as are few bytes."""
        saved: dict[str, list[list[torch.Tensor]]] = {}
        for case in (case for case in self._calls if self._shown(case)):
            there = saved.setdefault(contents.name(case.shapes), [])
            known = any(all(map(same_bits, case.data, each)) for each in there)
            if not known and sum(tensor.nbytes for tensor in case.data) * (len(there) + 1) <= _KEPT_BYTES:
                there.append([tensor.cpu().clone() for tensor in case.data])
        return {name: calls for name, calls in saved.items() if calls}

    def _shown(self, case: Case) -> bool:
        return case.call.number < len(self._user.inputs)

    def _spec(self, saved: Json) -> Json:
        """problem.yaml."""
        sizes = {
            case.shapes: {name: several[index] for several, name in self._dims.items()}
            for index, case in enumerate(self._cases)
        }
        shown, held = ([one for one in self._cases if self._shown(one) is visible] for visible in (True, False))
        real = [{**dims, "real": 1, "seed": 1} for shapes, dims in sizes.items() if contents.name(shapes) in saved]
        cases = {
            "tests": [*({**sizes[case.shapes], "seed": number} for number, case in enumerate(shown, 1)), *real],
            "leaderboard": [
                {**sizes[case.shapes], "seed": number, **self._weight(case, shown)}
                for number, case in enumerate(shown, 101)
            ],
            "heldout": [{**sizes[case.shapes], "seed": number} for number, case in enumerate(held, 201)],
        }
        args = [
            {
                "name": name,
                "dtype": kind,
                "shape": ", ".join(shape),
                "layout": ", ".join(f"{key} {met[key]}" for key in ("order", "stride") if key in met) or "contiguous",
                "role": "inout" if name in self.inout else "in" if index < self._count else "out",
            }
            for index, (name, kind, shape, met) in enumerate(
                zip(self._names, self._kinds, self._shapes, self._met, strict=True)
            )
        ]
        return {
            "title": self._region.title,
            "description": self._description(),
            "languages": ["python", "triton", "cuda", "hip"] if self._user.gpu else ["python", "cpp"],
            "args": args,
            "dims": list(self._dims.values()),
            "check": {"c1": 4 if self._computed.itemsize > 2 else 1, "accumulate": str(self._computed)[6:]},
            "baselines": [*self._seeds()],
            "limits": {"compile_s": 120, "check_s": 120, "time_s": 120},
            "work": self._work(),
            "cases": {name: rows for name, rows in cases.items() if rows},
        }

    def _weight(self, case: Case, among: Sequence[Case]) -> Json:
        """The case's share of the cases' recorded time, where there are several and the time of each is known."""
        times = [self._region.times[each.call.input_shapes] for each in among]
        share = self._region.times[case.call.input_shapes] / max(sum(times), 1e-30)
        return {"weight": float(f"{share:.3g}")} if len(times) > 1 and min(times) > 0 else {}

    def _moved(self) -> list[list[str]]:
        """The sizes of the part of each input that every kernel reads; [] for none."""
        names = self._names[: self._count]
        return [shape or ["1"] if name in self._read else [] for name, shape in zip(names, self._shapes, strict=False)]

    def _work(self) -> Json:
        """What no kernel can do without: a tensor of which a part may be left out is not counted."""
        tensors = list(zip(self._names, self._kinds, self._shapes, strict=True))
        moved = [(kind, part) for part, kind in zip(self._moved(), self._kinds, strict=False) if part]
        moved += [(kind, shape) for name, kind, shape in tensors if name in self.inout]
        bytes_ = Counter[str]()
        for kind, shape in [*moved, *((kind, shape) for _, kind, shape in tensors[self._count :])]:
            bytes_["*".join(sorted(size for size in shape if size != "1"))] += getattr(torch, kind).itemsize
        terms = {product: f"{size}*{product}" if product else str(size) for product, size in bytes_.items()}
        sizes = {name: several[0] for several, name in self._dims.items()}
        while len(" + ".join(terms.values())) > LONGEST:  # less than the least traffic is a bound, too
            del terms[min(terms, key=lambda term: bytes_[term] * calculate(term or "1", sizes))]
        kind = next((PRECISIONS[kind] for kind in self._kinds if kind in PRECISIONS), "")
        return {**({"dtype": kind} if kind else {}), "bytes": " + ".join(terms.values())}

    def _statement(self) -> str:
        modules = self._region.modules
        names = ", ".join(modules[:3]) + (" ..." if len(modules) > 3 else "")
        constants = {
            name: value
            for name, value in self._cases[0].call.constants.items()
            if value is not None and not isinstance(value, dict)
        }
        with catch_foreign() as caught:
            source = inspect.getsource(type(self._user.model.get_submodule(modules[0])))
        return TEXTS["STATEMENT"].format(
            title=self._region.title,
            many=f"{len(modules)} modules" if len(modules) > 1 else "A module",
            file=self._user.file.name,
            names=names,
            share=100 * self._region.share,
            changed=f" It changes {' and '.join(self.inout)} in place." if self.inout else "",
            constants=f" Besides it was called with {constants}." if constants else "",
            source="# its source is not at hand" if caught else textwrap.dedent(source).rstrip(),
        )

    def _facts(self, folder: Path) -> Json:
        """region.json."""
        region, call = self._region, self._cases[0].call
        return {
            "model": os.path.relpath(self._user.file, folder),
            "class": region.kind,
            "modules": region.modules,
            "inputs": [tensor._asdict() for tensor in call.inputs],
            "constants": call.constants,
            "returns": call.returns,
            "changed": list(call.written),
            "parameters": [tensor.name for tensor in self._cases[0].tensors[len(call.inputs) :]],
            "outputs": [{"shape": tensor.shape, "dtype": tensor.dtype} for tensor in call.outputs],
            "share": region.share,
            "compiled_share": region.compiled_share,
            "device": "cuda" if self._user.gpu else "cpu",
        }
