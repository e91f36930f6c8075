"""SmartSpec (Liu et al. 2024): the goodput argmax, its variants, and the loop that they share."""
