"""The workload: traces, their readers, and SLO mixes."""
