"""All compiled loops, kept together."""

from specsim.kernels.compiling import compiling

with compiling():
    from specsim.kernels.ledger_loops import answer, commit, deepen, reserve, reserve_draft
    from specsim.kernels.tree_loops import grow, rounds, select

__all__ = ["answer", "commit", "deepen", "grow", "reserve", "reserve_draft", "rounds", "select"]
