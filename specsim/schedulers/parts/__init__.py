"""Parts that schedulers share: who runs, how far to speculate, checks of parameters."""
