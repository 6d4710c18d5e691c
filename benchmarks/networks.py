"""What `ksflow model profile` makes of the modules of published networks, as a Markdown table.

    python benchmarks/networks.py [NETWORK ...]

Each network is built from its library's configuration with random weights: transformers and timm have to be installed
beside ksflow. Each region that takes 5 % of the network's time or more either becomes a problem, whose reference was
compared with the module and whose eager seed is judged, or is refused in a sentence.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

_SHARE = 5.0  # per cent of the time of the network
_HEAD = "import torch\n\n\ndef model():\n    torch.manual_seed(0)\n"
_TOKENS = '\n\ndef inputs():\n    return {"input_ids": torch.arange(64)[None] %% 1000%s}\n'
_SMALL = "hidden_size=128, num_hidden_layers=2, vocab_size=1000"
NETWORKS = {
    "transformers LlamaModel": f"{_HEAD}    from transformers import LlamaConfig, LlamaModel\n\n"
    f"    return LlamaModel(LlamaConfig({_SMALL}, intermediate_size=352, num_attention_heads=4)).eval()\n"
    + _TOKENS
    % ', "use_cache": False',
    "transformers BertModel": f"{_HEAD}    from transformers import BertConfig, BertModel\n\n"
    f"    return BertModel(BertConfig({_SMALL}, intermediate_size=512, num_attention_heads=4)).eval()\n" + _TOKENS % "",
    "transformers MambaModel": f"{_HEAD}    from transformers import MambaConfig, MambaModel\n\n"
    f"    return MambaModel(MambaConfig({_SMALL}, state_size=8)).eval()\n" + _TOKENS % ', "use_cache": False',
    **{
        f"timm {name}": f'{_HEAD}    import timm\n\n    return timm.create_model("{name}").eval()\n'
        "\n\ndef inputs():\n    return torch.randn(1, 3, 224, 224)\n"
        for name in ("convnext_atto", "mobilenetv4_conv_small", "vit_tiny_patch16_224")
    },
}
_ROW = re.compile(r"^ +(\d+) +(\S+(?: x\d+)?: \S+) +[\d.]+ +([\d.]+) %", re.MULTILINE)


def ksflow(folder: str, *words: str) -> str:
    """What a command wrote, of both streams."""
    environment = {**os.environ, "COLUMNS": "200"}
    command = [sys.executable, "-m", "ksflow", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def outcome(folder: str, number: str) -> str:
    """What became of a region: the eager seed's verdict on the problem that it is, or the refusal."""
    said = ksflow(folder, "model", "profile", "network.py", "mode=none", f"regions={number}", f"out=region{number}")
    if (written := re.search(rf"written to (region{number}/\S+):", said)) is None:
        return "refused: " + said.strip().rpartition("\n")[2].removeprefix("ksflow: ")
    words = (f"problem=./{written[1]}", "problem.seeds=[00_eager.py]", "out=verdict.json")
    judged = ksflow(folder, "evaluate", "00_eager.py", *words)
    file = Path(folder, "verdict.json")
    verdict = json.loads(file.read_text())["evaluation"]["verdict"] if file.exists() else judged.strip()
    return f"a problem; the judge of its eager seed: {verdict}"


def main(wanted: list[str]) -> int:
    """Print the table of the networks whose names have one of the words; all of them without a word."""
    print("| network | region | share | what came of it |\n|---|---|---|---|")
    for name, text in NETWORKS.items():
        if wanted and not any(word in name for word in wanted):
            continue
        with tempfile.TemporaryDirectory(prefix="ksflow-") as folder:
            Path(folder, "network.py").write_text(text, encoding="utf-8")
            said = ksflow(folder, "model", "profile", "network.py", "mode=none")
            rows = _ROW.findall(said)
            if not rows:
                print(f"| {name} | | | {said.strip().rpartition(chr(10))[2]} |", flush=True)
            for number, region, share in rows:
                if float(share) >= _SHARE:
                    print(f"| {name} | {region} | {share} % | {outcome(folder, number)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
