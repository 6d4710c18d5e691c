"""Tokens are estimated, and never to be fewer than by a model's own tokenizer."""

import importlib.util

import pytest
import tokenizer

from ksflow.home import PACKAGE, shipped_path
from ksflow.kernels.source.tokens import estimate

tiktoken = pytest.importorskip("tiktoken")
TEXTS = [
    file.read_text(encoding="utf-8")
    for folder in ("seeds", "knowledge", "problems")
    for file in sorted(shipped_path(folder).rglob("*"))
    if file.suffix in (".py", ".cpp", ".cu", ".hip", ".md", ".yaml")
]
TEXTS += [(PACKAGE.parent / "README.md").read_text(), "0.123456 " * 300, "x\n" * 300, "ééé größer 的是 " * 100]


@pytest.fixture
def no_tokenizer_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer.counter.cache_clear()
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)


@pytest.mark.usefixtures("no_tokenizer_yet")
@pytest.mark.parametrize("model", ["openai/gpt-5", "azure/gpt-4", "openrouter/openai/gpt-4o"])
def test_an_estimate_is_never_short_and_not_far_off(model: str) -> None:
    if importlib.util.find_spec("litellm") is None:
        pytest.skip("its copy of the tokenizers is not here")
    count = tokenizer.counter(model)
    assert count is not estimate
    pairs = [(estimate(text), count(text)) for text in TEXTS]
    assert all(guess >= true for guess, true in pairs)
    assert sum(guess for guess, _ in pairs) < 1.4 * sum(true for _, true in pairs)
