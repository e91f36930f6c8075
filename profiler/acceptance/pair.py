"""Target and drafter, loaded and checked against each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from profiler.acceptance.drafters import LookupRecorder, ModelRecorder
from profiler.acceptance.network import Network, network, without_layers
from profiler.acceptance.prompts import Prompt
from profiler.acceptance.record import Task
from profiler.acceptance.settings import RecordingSettings
from profiler.models.loading import load_model, load_tokenizer
from specsim.errors import SpecsimError


class RecordingPair(NamedTuple):
    """A pair to record: the target's network, the drafter, the tokenizer, the common ids, those that end a text.

    `positions` is the longest text, prompt included, that both models allow; 0 if they state none.
    """

    target: Network
    drafter: ModelRecorder | LookupRecorder
    tokenizer: PreTrainedTokenizerBase
    vocabulary: int
    stop: frozenset[int]
    positions: int


def load_pair(settings: RecordingSettings, device: str) -> RecordingPair:
    """Return a pair ready to record.

    Raises
    ------
    SpecsimError
        One line: a model that cannot be loaded, layers that do not exist, vocabularies that differ.
    """
    tokenizer = load_tokenizer(settings.target)
    if settings.draft:
        same_vocabulary(tokenizer, load_tokenizer(settings.draft), settings.target, settings.draft)
    model = load_model(settings.target, device=device, dtype=settings.dtype)
    target, stop = network(model, settings.target), stop_ids(model, tokenizer)
    given = settings.temperature, settings.proposals
    if settings.drafter == "lookup":
        lookup = LookupRecorder(target, target.vocabulary, *given, *settings.lookup, settings.every)
        return RecordingPair(target, lookup, tokenizer, target.vocabulary, stop, _positions(model))
    if settings.drafter == "skip":
        draft = without_layers(model, settings.skip_layers)
    else:
        draft = load_model(settings.draft, device=device, dtype=settings.dtype)
    drafts = network(draft, settings.draft or settings.target)
    vocabulary = min(target.vocabulary, drafts.vocabulary)
    drafter = ModelRecorder(drafts, target, vocabulary, *given, settings.every, settings.draft_sampling)
    positions = min(filter(None, (_positions(model), _positions(draft))), default=0)
    return RecordingPair(target, drafter, tokenizer, vocabulary, stop, positions)


def same_vocabulary(
    target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase, target_name: str, draft_name: str
) -> None:
    """Raise SpecsimError, one line, unless every token has the same id in both tokenizers."""
    ours, theirs = target.get_vocab(), draft.get_vocab()
    if ours == theirs:
        return
    said = f"{len(ours)} tokens against {len(theirs)}"
    if len(ours) == len(theirs):
        token = next(token for token, number in sorted(ours.items()) if theirs.get(token) != number)
        said = f"token {token!r} is {ours[token]} against {theirs.get(token, 'none')}"
    raise SpecsimError(
        f"target {target_name!r} and draft {draft_name!r} have different vocabularies ({said}); "
        "a draft must share its target's"
    )


def tasks(prompts: Iterable[Prompt], encode: Callable[[str], tuple[int, ...]], limit: int, longest: int) -> list[Task]:
    """Return the first `limit` prompts of each category that have at most `longest` tokens; 0: no limit.

    Raises
    ------
    SpecsimError
        When none is left.
    """
    taken: dict[str, int] = {}
    found = []
    for category, sequence, text in prompts:
        if limit and taken.get(category, 0) >= limit:
            continue
        ids = encode(text)
        if 0 < len(ids) <= longest:
            taken[category] = taken.get(category, 0) + 1
            found.append(Task((category, sequence), ids))
    if not found:
        raise SpecsimError(
            f"no prompt is at most {longest} tokens long; expected a larger --longest-prompt, "
            "or fewer --tokens where the model's positions bind"
        )
    return found


def encoder(tokenizer: PreTrainedTokenizerBase) -> Callable[[str], tuple[int, ...]]:
    """Return a function from a user's message to token ids, with the chat template if there is one."""

    def encode(text: str) -> tuple[int, ...]:
        if not tokenizer.chat_template:
            return tuple(tokenizer(text)["input_ids"])
        message = [{"role": "user", "content": text}]
        said: Any = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=True)
        return tuple(said["input_ids"])

    return encode


def _positions(model: PreTrainedModel) -> int:
    found = getattr(model.config, "max_position_embeddings", None)
    return found if isinstance(found, int) else 0


def stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the token ids that end a text."""
    ends = getattr(model.generation_config, "eos_token_id", None)
    listed = ends if isinstance(ends, list) else [ends]
    return frozenset(each for each in [*listed, tokenizer.eos_token_id] if isinstance(each, int))
