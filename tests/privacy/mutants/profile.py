"""A pytest plugin: Hypothesis draws the same examples every time, keeps none, and shrinks none."""

import hypothesis

hypothesis.settings.register_profile(
    "mutants",
    deadline=None,
    database=None,
    derandomize=True,
    phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
    suppress_health_check=list(hypothesis.HealthCheck),
)
