"""Logs of real brokers, for the kernels."""

import pytest

from tests.unit.formats import kernel_logs as logs


@pytest.fixture(scope="session")
def golden_log(golden):
    made = {}

    def of_version(version):
        if version not in made:
            made[version] = logs.GoldenLog(golden(version).store, with_tags=version == "5.5.0")
        return made[version]

    return of_version
