"""A scheduler of one's own: draft while few requests decode, decode plainly when many do.

python own_scheduler.py
"""

from dataclasses import dataclass
from pathlib import Path

from specsim import sweep
from specsim.plugin import Forest, Growing, Sequences, Speculation, View, grow_trees, trees_fit

SETTINGS = """
_target_: specsim.schedulers.composed.Composed
speculation: {_target_: own_scheduler.WhileFew, num_speculative_tokens: 6, most_decoding: 64}
batching:
  {_target_: specsim.schedulers.sarathi.TokenBudget, max_num_seqs: 256, max_num_batched_tokens: 2048, watermark: 0.01}
"""


@dataclass(frozen=True, slots=True)
class WhileFew(Speculation):
    """Chains of `num_speculative_tokens` for everybody while at most `most_decoding` requests decode."""

    num_speculative_tokens: int
    most_decoding: int
    drafts = True  # the drafter reads prompts too, since it may have to propose behind them

    def draft_tokens(self, requests: int) -> int:
        """Return the most that a request verifies; the token budget keeps room for them."""
        return self.num_speculative_tokens

    def grow(self, view: View, sequences: Sequences) -> Growing:
        """Yield the draft passes of this step and return the trees to verify."""
        k, n, tokens = self.num_speculative_tokens, sequences.decoding, sequences.scheduled_tokens
        fits = trees_fit(view, sequences.requests, tokens, n, k, sequences.catch_up, sequences.evicted)
        if n > self.most_decoding or not fits:
            return Forest.roots(len(sequences.requests))
        return (yield from grow_trees(view, sequences.requests, sequences.catch_up, n, k, width=1))


def main() -> None:
    """Sweep the limit against the load: 0 never drafts, 512 always does."""
    Path("own_scheduler.yaml").write_text(SETTINGS, encoding="utf-8")
    runs = sweep(
        {"scheduler__speculation__most_decoding": [0, 16, 32, 512], "rps": [4, 8, 12]},
        scheduler="./own_scheduler.yaml",
        plugins=[__file__],
        profile="llama8b_1b_a100",
        trace="poisson",
        requests=400,
    )
    rows = runs.table[runs.table["slo_class"] == "all"].assign(tpot_ms=lambda rows: 1000 * rows["mean_tpot_s"])
    for measure, unit in (("tpot_ms", "mean TPOT, ms"), ("slo_attainment", "share of requests that attain")):
        print(f"{unit}: most_decoding by requests/s\n")
        print(rows.pivot(index="scheduler.speculation.most_decoding", columns="rps", values=measure).round(2), "\n")


if __name__ == "__main__":
    main()
