"""A second implementation of the simulator in plain loops, without simpy or numpy, to hold the engine against.

It is written from docs/metrics.md, docs/schedulers.md, docs/your-scheduler.md, docs/engines.md and the docstrings of
schedulers and pass shapes, one request and one token at a time, and imports nothing of specsim. Begin with `server`.
"""
