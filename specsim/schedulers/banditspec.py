"""Chains of the length that a bandit takes for the fastest, explored as far as its confidence asks.

Paper: BanditSpec (Hou et al., ICML 2025, arXiv 2505.15141), Algorithm 4 (UCBSpec), Eq. 5 to 7, section 6.2.
Idea: each length is an arm. After one step with each, a step takes the arm with the highest mean reward plus
confidence radius. The reward of a step is its throughput.
Deviations:
- Eq. 6 bounds accepted tokens, in [1, L + 1]; section 6.2 rewards tokens a second. So that the radius has its unit, the
  reward is tokens a request x estimated seconds of the step without drafts / its seconds, at most L + 1.
- The paper begins anew with every prompt or batch of prompts. Here one bandit serves all requests of a replica and
  never forgets; the batch size is none of its context.
- The paper prints no delta. `exploration` times the radius is ours: 1 is the paper's. The authors' code adds the same
  radius to all arms, which explores nothing beyond the first rounds.
- After arm 0 the first draft pass reads what the drafter's cache lacks. A step without memory for an arm's chains
  decodes without drafts and teaches nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.core.passes import Emitted
from specsim.core.protocols import View
from specsim.core.request import Floats
from specsim.core.trees import Forest
from specsim.schedulers.parts.growth import grow_chains, plain_shape
from specsim.schedulers.parts.protocols import Growing, Sequences, Speculation, at_least, draft_length


@dataclass
class UcbLengths(Speculation):
    """A speculation part: chains of one length for all, that with the highest upper confidence bound.

    Parameters
    ----------
    arms : the lengths of a chain that it chooses among; 0 does not speculate.
    delta : the probability with which the bounds may fail. exploration : times the confidence radius.

    `pulls` (arms,) counts the steps of each arm, `means` (arms,) are their rewards.
    """

    arms: list[int]
    delta: float
    exploration: float

    def __post_init__(self) -> None:
        if not isinstance(self.arms, list) or not self.arms or not all(type(each) is int for each in self.arms):
            raise ValueError(f"arms: {self.arms!r} is no list of draft tokens such as [0, 1, 2, 3, 4]")
        draft_length(arms=min(self.arms))
        draft_length(arms=max(self.arms))
        at_least(0, exploration=self.exploration)
        if not 0 < self.delta <= 1:
            raise ValueError(f"delta={self.delta!r} is not in (0, 1]")
        self._begun, self._began_s, self._plain_s = False, 0.0, 0.0
        self.pulls, self.means = np.zeros(len(self.arms), dtype=np.int64), np.zeros(len(self.arms))

    def begin(self, requests: int) -> None:
        """Begin a run; the state is none of the requests'."""
        self._begun = True

    @property
    def drafts(self) -> bool:
        """Whether it drafts: whether any arm is above 0."""
        return max(self.arms) > 0

    @property
    def arm(self) -> int:
        """The place of the arm in force: the first that was never pulled, else that with the highest bound."""
        if not self.pulls.all():
            return int(np.argmin(self.pulls > 0))
        return int(np.argmax(self.means + self.exploration * self.radius()))

    def radius(self) -> Floats:
        """Return the confidence radius of each arm, (arms,) (Eq. 6)."""
        n, steps = self.pulls, self.pulls.sum()
        log = np.log(len(n) * float(steps) ** 2 * np.sqrt(1 + n)) - np.log(self.delta)
        radius: Floats = max(self.arms) / 2 * np.sqrt((1 + n) / n**2 * (1 + 2 * log))
        return radius

    def draft_tokens(self, requests: int) -> int:
        """Return the length of the arm in force; before a run the greatest."""
        return self.arms[self.arm] if self._begun else max(self.arms)

    def grow(self, view: View, sequences: Sequences) -> Growing:
        """Yield a draft pass per token of the arm in force and return the chains; none if they do not all fit."""
        self._began_s, self._plain_s = view.forward_s, view.cost_model.target.seconds(plain_shape(view, sequences))
        return grow_chains(view, sequences, self.arms[self.arm])

    def on_verified(self, view: View, sequences: Sequences, forest: Forest, answer: Emitted) -> None:
        """Reward the arm in force, if its chains have run."""
        arm, n = self.arm, sequences.decoding
        if not n or bool(self.arms[arm]) != bool(forest.draft_nodes):
            return
        tokens = float(answer.tokens[:n].sum()) / n
        reward = min(tokens * self._plain_s / (view.forward_s - self._began_s), max(self.arms) + 1.0)
        self.pulls[arm] += 1
        self.means[arm] += (reward - self.means[arm]) / self.pulls[arm]
