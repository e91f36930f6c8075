"""Compare schedulers at several request rates: a table on the terminal, a figure in compare_schedulers.png.

python compare_schedulers.py
"""

from specsim import sweep

SCHEDULERS = ["continuous", "vllm_spec", "adaserve"]
RATES_PER_S = [2, 4, 6, 8]
SEEDS = range(3)


def main() -> None:
    """Run every scheduler at every rate on the same requests and the same text."""
    runs = sweep(
        {"scheduler": SCHEDULERS, "rps": RATES_PER_S, "seed": SEEDS},
        trace="azure_conv",  # the twin that ships, unless SPECSIM_DATA holds the real trace
        slo="adaserve",  # three classes, each with its own objectives
        requests=300,
        out="compare_schedulers",  # a second call runs only what is new
    )
    for note in runs.notes:
        print(f"note: {note}")

    means = runs.means("slo_attainment")  # over the seeds; one row a class, and one for `all`
    attained = means[means["slo_class"] == "all"].pivot(index="rps", columns="scheduler", values="mean")
    print("share of requests that met every objective, by requests/s\n")
    print(attained[SCHEDULERS].round(3).to_string())

    runs.curves("slo_attainment", x="rps").savefig("compare_schedulers.png", dpi=120)


if __name__ == "__main__":
    main()
