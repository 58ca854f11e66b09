"""Tests that are coroutines: how they are run, with what they need around them."""

import functools
import inspect


def within(runner, *fixtures, **options):
    """Run an async test by ``runner(*fixtures, test, **options)``.

    ``fixtures`` are names of fixtures. The positional-only parameters of the test come from the
    runner, all others are fixtures.
    """

    def decorate(test):
        parameters = inspect.signature(test).parameters.values()
        own = [each.name for each in parameters if each.kind is not each.POSITIONAL_ONLY]

        @functools.wraps(test)
        def run(**given):
            async def main(*world):
                return await test(*world, **{name: given[name] for name in own})

            runner(*(given[name] for name in fixtures), main, **options)

        del run.__wrapped__
        run.__signature__ = inspect.Signature(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
            for name in dict.fromkeys([*fixtures, *own])
        )
        return run

    return decorate
