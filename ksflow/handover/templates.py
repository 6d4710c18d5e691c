"""Text of the files that are written, which Python's `format` completes, so braces are doubled."""

from collections.abc import Mapping

ENTRIES = {
    "kernelbench": """

class ModelNew(torch.nn.Module):
    def __init__(self, *_):
        super().__init__()

    def forward(self, *data):
        return _call(data)
""",
    "flashinfer": """

def run(*data):
    return _call(data)
""",
    "": """

def custom_kernel(data):
    return _call([data] if isinstance(data, torch.Tensor) else data)
""",
}
"""Format -> what its users call."""
HEAD = """{imports}

import torch

{constants}
"""
"""Imports and constants."""
CASES = '''_ROWS = {{
{rows}
}}
"""Sizes, strides (0 where there is one element) and type of each tensor -> its place, outputs (sizes, strides, type),
places that are returned, {row}."""


def _key(data):
    return tuple(
        (tuple(one.shape), tuple(s if n > 1 else 0 for n, s in zip(one.shape, one.stride())), str(one.dtype)[6:])
        for one in data
    )


def _tensors(data):
    """All tensors of a judged case, in their places, and what is known of the case."""
    key = _key(data)
    if key not in _ROWS:
        raise ValueError(f"no case with tensors of {{key}} was judged; there are {{list(_ROWS)}}")
    places, outputs, returned, rest = _ROWS[key]
    tensors = dict(zip(places, data))
    for place, (shape, steps, kind) in outputs.items():
        if place not in tensors:
            tensors[place] = torch.empty_strided(shape, steps, dtype=getattr(torch, kind), device=data[0].device)
    return [tensors[place] for place in range(len(tensors))], returned, rest, key


def _result(tensors, returned):
    found = [tensors[place] for place in returned]
    return found[0] if len(found) == 1 else tuple(found)
'''
"""Cases, and a case's tensors."""
CPP = '''
def _command(march, *words):
    """With the first C++ compiler that is here: g++, clang++, c++, else zig's from PyPI (`pip install ziglang`)."""
    for name in ("g++", "clang++", "c++"):
        if found := shutil.which(name):
            return [found, f"-march={march}", *words]
    march = march.replace("-", "_")
    return [sys.executable, "-m", "ziglang", "c++", "-fno-sanitize=undefined", f"-march={march}", *words]


'''
"""The command of a C++ compiler; not completed, so its braces are single."""
COMPILE = '''

def _compiled(files, use):
    """What `use` makes of the path of the compiled files."""
    with tempfile.TemporaryDirectory(prefix="ksflow-") as folder:
        for name, text in files.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
                out.write(text)
        subprocess.run(_COMMAND, cwd=folder, check=True)
        return use(os.path.join(folder, {made!r}))
'''
"""A source, through a compiler."""
VARIANTS = '''

def _variant(number):
    """The files of a variant."""
    text = _FILES[{main!r}].split("\\n")
    for at, line in _VARIANTS[number].items():
        text[at] = line
    return {{**_FILES, {main!r}: "\\n".join(text)}}
'''
"""A kernel's variants, which differ in a few lines."""
KERNEL = '''

@functools.cache
def _kernel():
    """Compiled when first called."""
    found = _compiled(_FILES, ctypes.CDLL).custom_kernel
    found.restype = None
    return found
'''
"""A shared object's function."""
BEST = '''"""{title}: kernel {id}, {score}.

`custom_kernel(data)` takes and returns what the problem's reference does. Compiled when it is first called.
"""

'''
"""How the module of a winner begins."""
ANY_SIZE = '''

def custom_kernel(data{asked}):
    """Runs on CPU tensors; the last of `data` is the preallocated output, which is returned.{why}"""
    sizes = dict({sizes})
    strides = [stride for tensor in data for stride in tensor.stride()]
    numbers = [ctypes.c_int64(sizes[name]) for name in {dims!r}]
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in data]
    _kernel()(*pointers, *numbers, (ctypes.c_int64 * len(strides))(*strides))
    return data[-1]
'''
"""A call at any sizes, which the tensors' shapes tell."""
HOST = """

def _call(data):
    tensors, returned, numbers, _ = _tensors(data)
    strides = [step for tensor in tensors for step in tensor.stride()]
    arguments = [*(ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors), *map(ctypes.c_int64, numbers)]
    _kernel()(*arguments, (ctypes.c_int64 * len(strides))(*strides){last})
    return _result(tensors, returned)
"""
"""A shared object that is called at the sizes that were judged."""
SPACES = '''

@functools.cache
def _spaces(key, device):
    """The workspaces of a case, kept from call to call."""
    sizes = _ROWS[key][3][1]
    return [torch.empty(size, dtype=getattr(torch, kind), device=device) for kind, size in sizes]
'''
"""Workspaces."""
DEVICE = '''

@functools.cache
def _driver():
    """The library that torch has loaded, or else the system's."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        loaded = [line.split()[-1] for line in maps if "/{stem}.so" in line]
    return ctypes.CDLL(loaded[0] if loaded else {library!r})


def _told(name, *arguments):
    if status := getattr(_driver(), name)(*arguments):
        raise RuntimeError(f"{{name}}: error {{status}}")


@functools.cache
def _code(variant):
    return _compiled(_variant(variant), lambda path: pathlib.Path(path).read_bytes())


@functools.cache
def _functions(variant, device):
    """Compiled when first called on a device."""
    code, module, found = _code(variant), ctypes.c_void_p(), {{}}
    _told("{prefix}ModuleLoadData", ctypes.byref(module), code)
    for name, shared in _SHARED[variant].items():
        symbol = re.search(rb"\\0(%b|_Z%d%b\\w*)\\0" % (name.encode(), len(name), name.encode()), code)
        found[name] = ctypes.c_void_p()
        _told("{prefix}ModuleGetFunction", ctypes.byref(found[name]), module, symbol[1] if symbol else name.encode())
{limit}    return found


def _call(data):
    """On the device that is current{which}."""
    tensors, returned, (variant, _, launches{maps}), key = _tensors(data)
    places = {{"arg": tensors, "workspace": _spaces(key, data[0].device)}}
{described}    functions = _functions(variant, data[0].device)
    queue = ctypes.c_void_p({queue})
    for name, sizes, shared, arguments{pdl} in launches:
        values = [value if kind == "int" else places[kind][value].data_ptr() for kind, value in arguments]
        held = (ctypes.c_int64 * len(values))(*values)
        addresses = (ctypes.c_void_p * len(values))(*({address}for at in range(len(values))))
        numbers = map(ctypes.c_uint, (*sizes, shared))
{early}        _told("{prefix}{launch}", functions[name], *numbers, queue, addresses, None)
    return _result(tensors, returned)
'''
"""Device code that the driver launches."""
TENSOR_MAP = '''

@functools.lru_cache(1024)
def _tensor_map(pointer, kind, extents, strides, box, swizzle, l2):
    """The description of an array for bulk tensor copies (CUtensorMap)."""
    made, rank = torch.empty(128, dtype=torch.uint8), len(extents)  # where 64 bytes begin, as the driver wants it
    lengths, steps = (ctypes.c_uint64 * rank)(*extents), (ctypes.c_uint64 * max(rank - 1, 1))(*strides)
    sides, ones = (ctypes.c_uint32 * rank)(*box), (ctypes.c_uint32 * rank)(*[1] * rank)
    head = ctypes.c_void_p(made.data_ptr()), ctypes.c_uint(kind), ctypes.c_uint(rank), ctypes.c_void_p(pointer)
    options = map(ctypes.c_uint, (0, swizzle, l2, 0))
    _told("cuTensorMapEncodeTiled", *head, lengths, steps, sides, ones, *options)
    return made
'''
"""What describes an array for CUDA's bulk tensor copies; the numbers are those of cuda.h's enumerations."""
DESCRIBED = """\
    places["tensor_map"] = [_tensor_map(places[kind][at].data_ptr(), *rest) for (kind, at), *rest in maps]
"""
"""The tensor maps of a call."""
EARLY = """\
        if pdl:  # it may begin before the one before it has ended (CUlaunchConfig)
            config = struct.pack("=7I4xQQI4x", *sizes, shared, queue.value or 0, ctypes.addressof(_EARLY), 1)
            _told("cuLaunchKernelEx", config, functions[name], addresses, None)
            continue
"""
"""CUDA's programmatic dependent launch, without the word that GPU MODE's server refuses."""
ATTRIBUTE = '_EARLY = ctypes.create_string_buffer(struct.pack("=i4xi60x", 6, 1))  # CUlaunchAttribute'
"""What allows it."""
LIMIT = """\
        if shared:  # beside what it declares itself, a block has little unless it asks
            _told("cuFuncSetAttribute", found[name], 8, ctypes.c_int(shared))
"""
"""What CUDA wants where a block has more than the usual."""
TRITON = '''

_folder = tempfile.TemporaryDirectory(prefix="ksflow-")


@functools.cache
def _module(variant):
    """Triton reads the text of a function from its file."""
    folder = os.path.join(_folder.name, str(variant))
    os.mkdir(folder)
    for name, text in _variant(variant).items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
            out.write(text)
    sys.path.insert(0, folder)
    name = f"ksflow_variant_{{variant}}"
    spec = importlib.util.spec_from_file_location(name, os.path.join(folder, {main!r}))
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _call(data):
    tensors, returned, (variant, _, launches), key = _tensors(data)
    places = {{"arg": tensors, "workspace": _spaces(key, data[0].device)}}
    for name, grid, arguments, options in launches:
        values = [value if kind == "int" else places[kind][value] for kind, value in arguments]
        getattr(_module(variant), name)[grid](*values, **options)
    return _result(tensors, returned)
'''
"""A module of Triton's functions."""
DRIVERS: Mapping[str, Mapping[str, str]] = {
    "cuda": {"library": "libcuda.so.1", "stem": "libcuda", "prefix": "cu", "launch": "LaunchKernel", "limit": LIMIT},
    "hip": {"library": "libamdhip64.so", "stem": "libamdhip64", "prefix": "hip", "launch": "ModuleLaunchKernel",
            "limit": ""},
}  # fmt: skip
"""Language -> how its driver calls things."""
BESIDE = """import os as _os
import sys as _sys
import tempfile as _tempfile

_BESIDE = {files!r}
_folder = _tempfile.TemporaryDirectory(prefix="ksflow-")
_sys.path.insert(0, _folder.name)
for _name, _text in _BESIDE.items():
    with open(_os.path.join(_folder.name, _name), "w", encoding="utf-8") as _out:
        _out.write(_text)

"""
"""Files that a module imports, which it holds."""
