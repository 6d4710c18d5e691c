"""How many tokens a text is for a model, for tests: by its own tokenizer where that lies here, else by an estimate."""

import hashlib
import importlib.util
import os
import tempfile
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path

from ksflow.kernels.source.tokens import estimate

_ADDRESS = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
_FOLDER = "TIKTOKEN_CACHE_DIR"
_SHARED_FILES = {"o200k_harmony": "o200k_base"}


@cache
def counter(model: str) -> Callable[[str], int]:
    """What counts tokens for a model, whose name begins with its providers': openai/gpt-5."""
    if importlib.util.find_spec("tiktoken") is None:
        return estimate
    import tiktoken

    try:
        encoding = tiktoken.encoding_name_for_model(model.rpartition("/")[2])
    except KeyError:
        return estimate
    if not (folder := _holding(encoding)):
        return estimate
    os.environ.setdefault(_FOLDER, folder)  # where it would look anyway, or the copy that litellm brings
    encode = tiktoken.get_encoding(encoding).encode_ordinary
    return lru_cache(256)(lambda text: len(encode(text)))


def _holding(encoding: str) -> str:
    """The folder with an encoding's file; empty where it would have to be fetched."""
    address = _ADDRESS.format(_SHARED_FILES.get(encoding, encoding))
    name = hashlib.sha1(address.encode(), usedforsecurity=False).hexdigest()
    own = os.environ.get(_FOLDER) or os.environ.get("DATA_GYM_CACHE_DIR")
    litellm = importlib.util.find_spec("litellm")
    places = [own] if own else [str(Path(tempfile.gettempdir(), "data-gym-cache"))]
    if not own and litellm and litellm.origin:
        places.append(str(Path(litellm.origin).with_name("litellm_core_utils") / "tokenizers"))
    return next((folder for folder in places if Path(folder, name).is_file()), "")
