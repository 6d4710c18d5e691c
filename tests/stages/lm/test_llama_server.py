"""A server as people run them (llama.cpp's), with a tiny model of random weights: what it says when it streams, counts
tokens, is asked too much and fails. A grammar holds its answers to a form.
"""

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from test_cli import ksflow

from ksflow.errors import ConfigError, StageError
from ksflow.lm import Model

if importlib.util.find_spec("llama_cpp") is None or importlib.util.find_spec("gguf") is None:
    pytest.skip('llama.cpp is not here: pip install -e ".[soak]", which compiles it', allow_module_level=True)
import gguf

pytestmark = [pytest.mark.slow, pytest.mark.soak]
WIDTH, HEADS, HIDDEN, CONTEXT = 64, 4, 128, 32_768
END = '"\\n[[ ## completed ## ]]"'
SELECT = (
    r'root ::= "[[ ## rationale ## ]]\n" [a-z]{20,60} "\n[[ ## base_id ## ]]\n" id "\n[[ ## reference_id ## ]]\n" id '
    f'{END}\nid ::= "00001" | "00002"'
)
READY = rf'root ::= "[[ ## numbers ## ]]\n[2, 3, 5]\n[[ ## greeting ## ]]\n" [a-z]{{4,9}} {END}'


def _write_model(path: Path) -> None:
    """One layer whose tokens are the bytes."""
    made = gguf.GGUFWriter(path, "llama")
    made.add_context_length(CONTEXT)
    made.add_embedding_length(WIDTH)
    made.add_block_count(1)
    made.add_feed_forward_length(HIDDEN)
    made.add_head_count(HEADS)
    made.add_head_count_kv(HEADS)
    made.add_layer_norm_rms_eps(1e-5)
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    made.add_tokenizer_model("llama")
    made.add_token_list(tokens)
    made.add_token_scores([0.0] * len(tokens))
    made.add_token_types([2, 3, 3, *[6] * 256])
    made.add_bos_token_id(1)
    made.add_eos_token_id(2)
    made.add_unk_token_id(0)
    made.add_chat_template("{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}")
    random = np.random.default_rng(1)
    shapes = {"token_embd": (len(tokens), WIDTH), "output": (len(tokens), WIDTH)}
    shapes |= {f"blk.0.attn_{part}": (WIDTH, WIDTH) for part in ("q", "k", "v", "output")}
    shapes |= {"blk.0.ffn_gate": (HIDDEN, WIDTH), "blk.0.ffn_up": (HIDDEN, WIDTH), "blk.0.ffn_down": (WIDTH, HIDDEN)}
    for name, shape in shapes.items():
        made.add_tensor(f"{name}.weight", random.normal(0, 0.1, shape).astype(np.float32))
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        made.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("llama")
    _write_model(folder / "tiny.gguf")
    options = {"model": folder / "tiny.gguf", "model_alias": "tiny", "n_ctx": CONTEXT, "n_threads": 1, "port": 0}
    words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    log = folder / "log"
    with log.open("w") as file:
        command = [sys.executable, "-m", "llama_cpp.server", *words, "--host", "127.0.0.1"]
        server = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
    try:
        yield f"{_address(server, log)}/v1"
    finally:
        server.kill()
        server.wait()


def _address(server: subprocess.Popen[bytes], log: Path) -> str:
    """As the server says it, once it listens."""
    while not (found := re.search(r"running on (http://\S+)", log.read_text())):
        try:
            server.wait(0.2)
        except subprocess.TimeoutExpired:
            continue
        pytest.fail(log.read_text())
    return found[1]


def _model(url: str, grammar: str = SELECT, **changes: object) -> Model:
    return Model("tiny", "openai", api_base=url, cache=False, options={"grammar": grammar}, **changes)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_stage_is_answered_and_the_tokens_are_told(url, stream, select, calls):
    selection = select(_model(url, stream=stream))
    assert {selection.base.id, selection.reference.id} <= {"00001", "00002"}
    (call,) = calls
    assert re.fullmatch("[a-z]{20,60}", selection.rationale)
    assert call.cost.tokens_out >= len(selection.rationale)
    if stream:  # this server counts no tokens of a stream: they stay spent as what they may have been
        assert call.cost.untold == 1
    else:
        assert call.cost.untold == 0
        assert call.cost.tokens_in > len(call.messages[1]["content"])
        assert call.cost.tokens_out == len(call.answer)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_answer_at_the_token_limit_is_told_and_not_taken(url, stream, select, calls):
    with pytest.raises(StageError, match=r"last line must be .* \(it reached the provider's token limit\)"):
        select(_model(url, stream=stream, max_tokens=40))
    assert [call.cut for call in calls] == [True, True]


@pytest.mark.parametrize(
    ("stream", "sentence"),
    [(False, rf"cannot take a prompt this long, .* context length is {CONTEXT} tokens"), (True, "lost the connection")],
    ids=["whole", "streamed"],
)
def test_a_prompt_beyond_the_context_is_one_sentence(url, stream, sentence, calls):
    """In a stream this server says nothing of it, and ends."""
    with pytest.raises(StageError, match=sentence):
        _model(url, stream=stream, retries=0).client("word " * 12_000)
    (call,) = calls
    assert call.error


def test_what_the_server_refuses_is_named(url):
    options = {"options": {"mirostat_mode": "sideways"}, "cache": False, "retries": 0}
    with pytest.raises(StageError, match="mirostat_mode"):
        Model("tiny", "openai", api_base=url, **options).client("hello")
    with pytest.raises(ConfigError, match=r"cannot be used as configured: .*Not Found"):
        _model(f"{url}/nowhere", retries=0).client("hello")


def test_the_commands_reach_it(url, tmp_path):
    """Its answers to `llm check` have the right form; a search has it select, and records what it said."""
    for name, grammar in (("ready", READY), ("select", SELECT.replace(' | "00002"', ""))):
        body = "\n".join(f"    {line}" for line in grammar.splitlines())
        (tmp_path / "mine/model").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"mine/model/{name}.yaml").write_text(
            f"_target_: ksflow.lm.Model\nprovider: openai\nname: tiny\napi_base: {url}\n"
            f"options:\n  grammar: |-\n{body}\n"
        )
    checked = ksflow(tmp_path, "llm", "check", "--config-dir=mine", "llm=openai_compatible", "model=ready")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "form: right" in checked.stdout
    words = ("recipe=dry_run", "selector=llm", "model=select", "designer=random", "writer=tune", "digester=none")
    done = ksflow(tmp_path, "problem=softmax", *words, "loop.evaluations=4", "loop.confirm=false", "--config-dir=mine")
    assert done.returncode == 0, done.stdout + done.stderr
    kept = subprocess.run(
        ["git", "-C", tmp_path / "runs/lineage.git", "log", "-p", "refs/ksflow/softmax/dry/calls"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.search(r"\[\[ ## rationale ## \]\]\\n[a-z]{20,60}", kept.stdout)
