"""The names of mqadmin's commands in the guide are those that mqadmin lists."""

from __future__ import annotations

import re

import pytest

from tests.docs.test_mqadmin import NAMES, OLD_NAMES
from tests.kit.java_program import MQADMIN_MAIN, run_java

pytestmark = [
    pytest.mark.java,
    pytest.mark.real_only,
    pytest.mark.rmq_versions("4.6.0", "4.9.7", "5.3.3", "5.5.0"),
]


def test_mqadmin_has_no_command_that_the_guide_lacks(real_cluster, rmq_version):
    listed = re.findall(
        r"^ +(\w+) ", run_java(real_cluster, MQADMIN_MAIN, []), re.MULTILINE
    )
    assert set(listed) <= {*NAMES, *OLD_NAMES}
    if rmq_version == "5.5.0":
        assert sorted(listed) == sorted(NAMES)
