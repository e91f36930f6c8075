"""Who asks for what, and when: traces, their readers, and SLO mixes."""
