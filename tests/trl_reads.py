"""A program of its own: an export is read with `datasets`, and TRL's trainers take each of its configurations.

    python tests/trl_reads.py EXPORT SCRATCH

Prints a JSON object: configuration -> rows of each split, and what its trainers made of the first row. Nothing is
downloaded: model and tokenizer are tiny, with random weights. It is apart from the tests because these libraries warn,
keep state and take seconds to import.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from datasets import DatasetDict, load_dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import (
    DPOConfig,
    DPOTrainer,
    GRPOConfig,
    GRPOTrainer,
    KTOConfig,
    KTOTrainer,
    RewardConfig,
    RewardTrainer,
    SFTConfig,
    SFTTrainer,
)

_CHAT = (
    "{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
_WORDS = ["<pad>", "<end>", "<unk>", "<system>", "<user>", "<assistant>", "float", "int", "kernel", "shape", "time"]
_LONGEST = 4_096
_LETTERS = 300
_ROWS = 2


def tokenizer() -> PreTrainedTokenizerFast:
    """Whole words, most of them unknown."""
    made = Tokenizer(models.WordLevel({word: index for index, word in enumerate(_WORDS)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    known = PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<end>", unk_token="<unk>")
    known.chat_template = _CHAT
    return known


def model() -> Any:
    """Of some thousand weights."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = Qwen2Config(vocab_size=len(_WORDS), num_key_value_heads=2, pad_token_id=0, eos_token_id=1, **sizes)
    return Qwen2ForCausalLM(config)


def shortened(value: Any) -> Any:
    """With the beginnings of texts alone: what is tried is how a row is read, not how long a step takes."""
    if isinstance(value, str):
        return value[:_LETTERS]
    if isinstance(value, list):
        return [shortened(part) for part in value]
    return {key: shortened(part) for key, part in value.items()} if isinstance(value, Mapping) else value


def settings(scratch: Path, **more: Any) -> dict[str, Any]:
    return {
        "output_dir": str(scratch),
        "use_cpu": True,
        "report_to": [],
        "max_steps": 1,
        "per_device_train_batch_size": 2,
        "save_strategy": "no",
        "bf16": False,
        **more,
    }


def stepped(trainer: Any) -> dict[str, Any]:
    """What became of the first row, after a step of training on it."""
    result = trainer.train()
    return {"columns": sorted(trainer.train_dataset.column_names), "steps": result.global_step}


def trained(name: str, data: DatasetDict, scratch: Path) -> dict[str, Any]:
    """Trainer -> what it made of the configuration."""
    rows = data["train"].select(range(min(_ROWS, len(data["train"])))).map(shortened)
    given = {"model": model(), "train_dataset": rows, "processing_class": tokenizer()}
    short = settings(scratch, max_length=_LONGEST)
    if name == "chat":
        return {"SFT": stepped(SFTTrainer(args=SFTConfig(**short), **given))}
    if name == "rl":
        return {"KTO": stepped(KTOTrainer(args=KTOConfig(**short), ref_model=model(), **given))}
    if name == "preference":
        preferred = stepped(DPOTrainer(args=DPOConfig(**short), ref_model=model(), **given))
        return {"DPO": preferred, "reward": reward_model(rows, scratch)}
    return {"GRPO": sampled(given, scratch)}


def reward_model(rows: Any, scratch: Path) -> dict[str, Any]:
    from transformers import Qwen2ForSequenceClassification

    classifier = Qwen2ForSequenceClassification(Qwen2Config(**{**model().config.to_dict(), "num_labels": 1}))
    args = RewardConfig(**settings(scratch, max_length=_LONGEST))
    return stepped(RewardTrainer(model=classifier, args=args, train_dataset=rows, processing_class=tokenizer()))


def sampled(given: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """The columns that a reward function is given, beside prompts and completions."""
    seen: dict[str, Any] = {}

    def reward(completions: list[Any], **columns: Any) -> list[float]:
        seen.update(columns)
        return [float(index) for index, _ in enumerate(completions)]

    args = GRPOConfig(**settings(scratch, num_generations=2, max_completion_length=4))
    result = GRPOTrainer(args=args, reward_funcs=reward, **given).train()
    return {"columns": sorted(seen), "steps": result.global_step}


def main(export: str, scratch: Path) -> None:
    found = {}
    for name in ("chat", "preference", "rl", "prompts"):
        data = load_dataset(f"{export}/{name}")
        found[name] = {
            "rows": {split: len(rows) for split, rows in data.items()},
            "features": {key: str(kind) for key, kind in data["train"].features.items()},
            "trainers": trained(name, data, scratch / name),
        }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
