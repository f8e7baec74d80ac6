"""How many random examples a property is tried with.

`pytest --hypothesis-profile NAME` chooses the dose; `-m quick` takes the smallest.
"""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings

#: Examples of a test that does not say how many it needs, by profile.
PROFILES = {"quick": 10, "rmq": 25, "mutation": 50, "thorough": 1_000}
#: In this profile a test ends with its first failure, and each run has the same
#: examples: who only asks whether a test fails need not wait for a short example.
MUTATION = "mutation"


def load(name: str) -> None:
    """Register all profiles, and use one.

    There are no deadlines: how long an example takes says more about a busy machine
    than about the code.
    """
    for each, examples in PROFILES.items():
        settings.register_profile(
            each,
            deadline=None,
            max_examples=examples,
            suppress_health_check=[HealthCheck.too_slow],
            derandomize=each == MUTATION,
            phases=[Phase.explicit, Phase.generate]
            if each == MUTATION
            else list(Phase),
        )
    settings.load_profile(name)


def doses(number: int) -> int:
    """Return the examples of a test that needs `number` times as many as others."""
    assert settings.default is not None
    return number * settings.default.max_examples
