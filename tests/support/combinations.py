"""Check each drawn example for every combination of some parameters."""

import itertools
from collections.abc import Callable, Iterable

from hypothesis import note

__all__ = ["for_every"]


def for_every(**axes: Iterable[object]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn a property with parameters into one that runs for all their combinations with each example.

    `pytest.mark.parametrize` would draw the same examples again for every combination, which costs far more than the
    check. Do not call `assume` in the property: it would skip the other combinations of the example.
    """
    names, combinations = tuple(axes), list(itertools.product(*axes.values()))

    def decorate(check: Callable[..., None]) -> Callable[..., None]:
        def run(**drawn: object) -> None:
            for values in combinations:
                note(f"with {dict(zip(names, values, strict=True))}")
                check(**dict(zip(names, values, strict=True)), **drawn)

        # not functools.wraps: Hypothesis would see the parameters
        run.__name__, run.__qualname__, run.__module__ = check.__name__, check.__qualname__, check.__module__
        run.__doc__ = check.__doc__
        return run

    return decorate
