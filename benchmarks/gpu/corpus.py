"""Facts and questions made of common words, and small models that read them.

`python -m benchmarks.gpu.corpus save FOLDER` writes the packaged embedder in float16 (45 MB), to be
brought to a machine that has no weights.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

from inferscale_core.embedding import DeviceEmbedder, load_embedder
from inferscale_core.embedding.load import load_model
from inferscale_core.settings import EmbedderSettings

RANDOM = "random"
"""An embedder of the packaged one's shape with random weights, where there are no others."""

_NAMES = [
    "Mira",
    "Freja",
    "Paolo",
    "Robin",
    "Kim",
    "Anders",
    "Lucia",
    "Hana",
    "Omar",
    "Tessa",
    "Ivo",
    "Greta",
    "Noor",
    "Felix",
    "Sanna",
]
_VERBS = [
    "bought",
    "sold",
    "painted",
    "repaired",
    "lost",
    "found",
    "borrowed",
    "planted",
    "cooked",
    "visited",
    "drew",
    "built",
]
_KINDS = [
    "small",
    "green",
    "heavy",
    "wooden",
    "silver",
    "broken",
    "old",
    "striped",
    "quiet",
    "round",
    "warm",
    "second",
]
_THINGS = [
    "bicycle",
    "lamp",
    "guitar",
    "table",
    "kettle",
    "garden",
    "boat",
    "ladder",
    "letter",
    "camera",
    "coat",
    "piano",
]
_PLACES = [
    "Bologna",
    "Lisbon",
    "Oslo",
    "Kyoto",
    "Quito",
    "Cork",
    "Ghent",
    "Malmo",
    "Porto",
    "Leeds",
    "Basel",
    "Turku",
]
_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
]
_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_MINILM: dict[str, Any] = {
    "hidden_size": 384,
    "intermediate_size": 1536,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "max_position_embeddings": 512,
    "vocab_size": 30522,
}


def facts(count: int, seed: int = 0) -> list[str]:
    """Each about 30 tokens long."""
    rng = random.Random(seed)
    return [_fact(rng) for _ in range(count)]


def questions(count: int, seed: int = 1) -> list[str]:
    rng = random.Random(seed)
    return [_question(rng) for _ in range(count)]


def _fact(rng: random.Random) -> str:
    one, other = rng.sample(_NAMES, 2)
    first, second = rng.sample(_THINGS, 2)
    return (
        f"{one} {rng.choice(_VERBS)} a {rng.choice(_KINDS)} {first} in {rng.choice(_PLACES)} in "
        f"{rng.choice(_MONTHS)} because {other} {rng.choice(_VERBS)} the {rng.choice(_KINDS)} "
        f"{second} that came from {rng.choice(_PLACES)} in {rng.choice(_MONTHS)} of that "
        "year, and never told anyone"
    )


def _question(rng: random.Random) -> str:
    one, other = rng.sample(_NAMES, 2)
    return (
        f"What did {one} do with the {rng.choice(_KINDS)} {rng.choice(_THINGS)} when {other} "
        f"came back from {rng.choice(_PLACES)} in {rng.choice(_MONTHS)}?"
    )


def chat_tokenizer() -> Any:
    """Byte-level BPE in which nearly every word of these texts is one token, as in large models."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=["<|bos|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*facts(500), *questions(500)], trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|bos|>", eos_token="<|im_end|>"
    )
    wrapped.chat_template = _CHATML
    return wrapped


def embedder(name: str, device: str, folder: Path) -> DeviceEmbedder:
    """name: a folder, `packaged` or `random`; a random one is written into `folder` first."""
    if name == RANDOM:
        name = str(_random_embedder(folder / "random-embedder"))
    return load_embedder(EmbedderSettings(model=name, device=device))


def _random_embedder(folder: Path) -> Path:
    """The packaged embedder's shape. sentence-transformers pools the mean of such a model."""
    if (folder / "modules.json").exists():
        return folder
    import torch
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=2000, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator([*facts(500), *questions(500)], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    plain = folder / "plain"
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=256,
    ).save_pretrained(plain)
    torch.manual_seed(0)
    BertModel(BertConfig(**_MINILM)).save_pretrained(plain)
    SentenceTransformer(str(plain), device="cpu").save(str(folder))
    return folder


def save(folder: Path) -> None:
    """The packaged embedder in float16, as sentence-transformers loads it."""
    load_model(EmbedderSettings(device="cpu")).half().save(str(folder), create_model_card=False)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(json.dumps({"folder": str(folder), "bytes": size}))


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "save":
        sys.exit(__doc__)
    save(Path(sys.argv[2]))
