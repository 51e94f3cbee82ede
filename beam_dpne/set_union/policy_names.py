"""The policies of set union by name, and what kinds there are; launch forms need them without Beam."""

LAPLACE_POLICIES = ("count_laplace", "weighted_laplace", "policy_laplace", "greedy")
GAUSSIAN_POLICIES = (
    "count_gaussian",
    "weighted_gaussian",
    "policy_gaussian",
    "screened_gaussian",
    "mad",
)
DESCENT_POLICIES = ("policy_laplace", "policy_gaussian", "screened_gaussian", "greedy")
CUTOFF_POLICIES = (*DESCENT_POLICIES, "mad")
POLICIES = (
    "count_laplace",
    "count_gaussian",
    "weighted_laplace",
    "weighted_gaussian",
    "policy_laplace",
    "policy_gaussian",
    "screened_gaussian",
    "greedy",
    "mad",
)
DEFAULT_POLICY = "screened_gaussian"
# How the words of n-grams are found: the two strategies' own, given ones, or another set union.
VOCABULARY_POLICIES = (
    "rounds",
    "weighted_gaussian",
    "public",
    *(policy for policy in POLICIES if policy != "weighted_gaussian"),
)
