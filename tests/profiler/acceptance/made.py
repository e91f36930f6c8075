"""A tiny random Llama, a tiny tokenizer and a few prompts: everything a recording needs, made in milliseconds."""

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402

from profiler.acceptance.network import generate, network, random_key  # noqa: E402

WORDS = 61
END = 1


def llama(layers: int = 2, seed: int = 0, vocabulary: int = WORDS):
    """Return a random Llama in float64; weights are large enough that its choices differ by context."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": layers, "vocab_size": vocabulary}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512}
    tokens = {"bos_token_id": 0, "eos_token_id": END, "pad_token_id": END}
    config = transformers.LlamaConfig(**sizes, **tokens, initializer_range=0.25, tie_word_embeddings=False)
    return transformers.LlamaForCausalLM(config).double().eval()


def tokenizer(words: int = WORDS, first: str = "w"):
    vocabulary = {"<s>": 0, "</s>": END, "<unk>": 2} | {f"{first}{n}": n for n in range(3, words)}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>", bos_token="<s>")


def model_folder(folder: Path, *, layers: int = 2, seed: int = 0, words: int = WORDS, first: str = "w") -> Path:
    llama(layers, seed, words).save_pretrained(folder)
    tokenizer(words, first).save_pretrained(folder)
    return folder


def prompt_file(path: Path, count: int = 3) -> Path:
    """Write `count` prompts of each of two categories, of different lengths and with repetitions."""
    rng = np.random.default_rng(5)
    lines = []
    for category in ("chat", "code"):
        for index in range(count):
            words = rng.integers(3, 12 if category == "code" else WORDS, size=4 + 3 * index)
            lines.append(json.dumps({"category": category, "prompt": " ".join(f"w{n}" for n in words)}))
    path.write_text("\n".join(lines) + "\n")
    return path


def prompt_ids(count: int = 3, seed: int = 1) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(3, WORDS, size=3 + 4 * index).tolist() for index in range(count)]


def written(model, prompts, *, tokens: int = 24, temperature: float = 0.0, seed: int = 0):
    """Return what a model writes behind prompts."""
    keys = [random_key(seed, "target", "chat", index) for index in range(len(prompts))]
    parts = network(model, "tiny")
    return generate(parts, prompts, keys, tokens=tokens, temperature=temperature, vocabulary=WORDS, stop={END})


def logits(model, ids) -> np.ndarray:
    """Return the logits behind every token of ids by one plain pass, (n, vocabulary)."""
    with torch.inference_mode():
        return model(input_ids=torch.tensor([list(ids)])).logits[0].numpy()
