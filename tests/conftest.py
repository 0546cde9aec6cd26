"""What all tests share: the requests that real clients sent, and a seed for hypothesis that CI can repeat."""

import os

import pytest
from hypothesis import HealthCheck, settings

from recordings import RECORDED, Recorded

# The same examples in every run; EXPLORE=1 looks for new ones, and more of them.
_QUIET = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fixed", derandomize=True, **_QUIET)
settings.register_profile("explore", max_examples=1000, **_QUIET)
settings.load_profile("explore" if os.environ.get("EXPLORE") else "fixed")


@pytest.fixture(params=RECORDED, ids=repr)
def recorded(request: pytest.FixtureRequest) -> Recorded:
    return request.param
