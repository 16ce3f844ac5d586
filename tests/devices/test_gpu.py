"""Every method, a network with convolutions and stacked chains on every GPU of this machine: `fedrelay doctor` does the
same."""

from __future__ import annotations

import pytest

from fedrelay.studies.doctor import on_devices
from fedrelay.system import devices

GPUS = devices.found()[1:]


@pytest.mark.skipif(not GPUS, reason="torch sees no GPU on this machine: nothing of this file was tried")
@pytest.mark.parametrize("name", on_devices.checks())
@pytest.mark.parametrize("device", GPUS or ["none"])
def test_a_method_repeats_its_bits_on_a_gpu_and_is_near_the_processor(device: str, name: str):
    assert on_devices.tried(name, device) == ""
