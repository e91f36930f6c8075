"""SmartSpec (Liu et al. 2024): the step of all its schedulers, and their proposals."""
