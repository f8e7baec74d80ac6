"""Client ids have the form that Java clients have used since 4.9."""

from __future__ import annotations

import pytest

from rmqcli.client_id import make_client_id


@pytest.mark.parametrize(
    ("instance", "is_broadcasting", "expected"),
    [
        (None, False, "10.0.0.1@42#77"),
        ("DEFAULT", False, "10.0.0.1@42#77"),
        (None, True, "10.0.0.1@DEFAULT"),
        ("blue", False, "10.0.0.1@blue"),
        ("blue", True, "10.0.0.1@blue"),
    ],
)
def test_client_ids_have_the_form_of_java_s(instance, is_broadcasting, expected):
    found = make_client_id(
        ip="10.0.0.1",
        instance_name=instance,
        pid=42,
        nanotime=77,
        is_broadcasting=is_broadcasting,
    )
    assert found == expected
