"""Data sets in the file formats their publishers give them: what they are, how to read them, where they come from."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrelay.data.federation import Source
from fedrelay.data.locate import Layout, data_folder
from fedrelay.data.sources import cifar, domains, femnist, idx, shakespeare, stackoverflow, svhn, tiny_imagenet, usps
from fedrelay.errors import BadInput


@dataclass(frozen=True)
class Remote:
    """A file at its publisher: where it is put (below the data folder), its checksum, and where it is unpacked."""

    url: str
    to: str
    checksum: str | None  # "md5:…" or "sha256:…"; None when no published one is known
    unpack: str | None = None  # the folder an archive is unpacked into; None for what is no archive
    extra: bool = False  # the data set can be read without it


@dataclass(frozen=True)
class FileSource:
    """A data set in files: its reader, the ways its files may be laid out, and where they come from."""

    name: str
    about: str
    classes: int
    reader: Callable[..., Source]
    layouts: tuple[Layout, ...]
    page: str
    licence: str
    citation: str
    remotes: tuple[Remote, ...] = ()

    def present(self, folder: Path) -> bool:
        """Whether the files of some layout are all there."""
        return any(not layout.missing(base) for layout in self.layouts for base in (folder / layout.folder, folder))


def load(name: str, data_dir: Path | str | None = None, **options: Any) -> Source:
    """A data set by name, from the data folder (see `locate.data_folder`)."""
    return named(name).reader(data_folder(data_dir), **options)


def named(name: str) -> FileSource:
    """The entry of this name; an unknown one is refused with the nearest."""
    if name not in FILES:
        close = difflib.get_close_matches(name, FILES, n=1, cutoff=0.4)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise BadInput(f"there is no data set {name!r}{hint} (there is: {', '.join(FILES)})")
    return FILES[name]


def _idx(site: str, folder: str, checksums: dict[str, str]) -> tuple[Remote, ...]:
    return tuple(
        Remote(f"{site}/{name}.gz", f"{folder}/{name}.gz", f"md5:{checksum}") for name, checksum in checksums.items()
    )


_MNIST = _idx(
    "https://ossci-datasets.s3.amazonaws.com/mnist",  # the publisher's own site refuses downloads
    "MNIST/raw",
    {
        "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
    },
)
_WRITERS = Remote(
    "https://raw.githubusercontent.com/facebookresearch/qmnist/master/qmnist-train-labels-idx2-int.gz",
    "MNIST/raw/qmnist-train-labels-idx2-int.gz",
    "md5:0058f8dd561b90ffdd0f734c6a30e5e4",
    extra=True,
)
_FASHION = _idx(
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    "FashionMNIST/raw",
    {
        "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
    },
)
_TORONTO = "https://www.cs.toronto.edu/~kriz"
_TFF = "https://storage.googleapis.com/tff-datasets-public"
_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass"
_SVHN = "http://ufldl.stanford.edu/housenumbers"

_ENTRIES = (
    FileSource(
        "cifar10",
        "60,000 colour images of 32 x 32 pixels",
        10,
        cifar.cifar10,
        cifar.CIFAR10_LAYOUTS,
        page=f"{_TORONTO}/cifar.html",
        licence="none stated; the publisher asks for the citation",
        citation="Krizhevsky, Learning multiple layers of features from tiny images, 2009",
        remotes=(
            Remote(
                f"{_TORONTO}/cifar-10-binary.tar.gz",
                "cifar-10-binary.tar.gz",
                "md5:c32a1d4ab5d03f1284b67883e8d87530",
                unpack=".",
            ),
        ),
    ),
    FileSource(
        "cifar100",
        "60,000 colour images of 32 x 32 pixels, fine labels",
        100,
        cifar.cifar100,
        cifar.CIFAR100_LAYOUTS,
        page=f"{_TORONTO}/cifar.html",
        licence="none stated; the publisher asks for the citation",
        citation="Krizhevsky, Learning multiple layers of features from tiny images, 2009",
        remotes=(
            Remote(
                f"{_TORONTO}/cifar-100-binary.tar.gz",
                "cifar-100-binary.tar.gz",
                "md5:03b5dce01913d631647c71ecec9e9cb8",
                unpack=".",
            ),
        ),
    ),
    FileSource(
        "mnist",
        "70,000 grey digits of 28 x 28 pixels, by 539 writers (QMNIST)",
        10,
        idx.mnist,
        idx.MNIST_LAYOUTS,
        page="http://yann.lecun.com/exdb/mnist/",
        licence="CC BY-SA 3.0; the writers (QMNIST): BSD 3-Clause",
        citation="LeCun et al., Gradient-based learning applied to document recognition, 1998; "
        "Yadav and Bottou, Cold case: the lost MNIST digits, 2019",
        remotes=(*_MNIST, _WRITERS),
    ),
    FileSource(
        "fashion-mnist",
        "70,000 grey pictures of clothes, 28 x 28 pixels",
        10,
        idx.fashion_mnist,
        idx.FASHION_LAYOUTS,
        page="https://github.com/zalandoresearch/fashion-mnist",
        licence="MIT",
        citation="Xiao et al., Fashion-MNIST, 2017",
        remotes=_FASHION,
    ),
    FileSource(
        "emnist",
        "grey digits and letters of 28 x 28 pixels, in six versions",
        62,
        idx.emnist,
        idx.emnist_layouts("byclass"),
        page="https://www.nist.gov/itl/products-and-services/emnist-dataset",
        licence="public domain (NIST)",
        citation="Cohen et al., EMNIST: extending MNIST to handwritten letters, 2017",
        remotes=(
            Remote(
                "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
                "EMNIST/gzip.zip",
                "md5:58c8d27c78d21e728a6bc7b3cc06412e",
                unpack="EMNIST",
            ),
        ),
    ),
    FileSource(
        "femnist",
        "grey digits and letters of 28 x 28 pixels, by writer",
        62,
        femnist.femnist,
        femnist.LAYOUTS,
        page="https://github.com/TalwalkarLab/leaf (preprocess.sh makes the folders train and test)",
        licence="public domain (NIST); LEAF: BSD 2-Clause",
        citation="Caldas et al., LEAF: a benchmark for federated settings, 2018",
        remotes=(
            Remote(
                f"{_TFF}/fed_emnist.tar.bz2",
                "femnist/fed_emnist.tar.bz2",
                "sha256:fe1ed5a502cea3a952eb105920bff8cffb32836b5173cb18a57a32c3606f3ea0",
                unpack="femnist",
            ),
        ),
    ),
    FileSource(
        "shakespeare",
        "the next character after 80 of them, by speaking role",
        80,
        shakespeare.shakespeare,
        shakespeare.LAYOUTS,
        page="https://github.com/TalwalkarLab/leaf (preprocess.sh makes the folders train and test)",
        licence="public domain; LEAF: BSD 2-Clause",
        citation="Caldas et al., LEAF: a benchmark for federated settings, 2018; Karpathy, char-rnn, 2015",
        remotes=(
            Remote(
                "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
                "shakespeare/input.txt",
                "sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
            ),
        ),
    ),
    FileSource(
        "stackoverflow",
        "the next word at every place of a sentence, by author",
        10_004,
        stackoverflow.stackoverflow,
        stackoverflow.LAYOUTS,
        page="https://www.tensorflow.org/federated/api_docs/python/tff/simulation/datasets/stackoverflow",
        licence="CC BY-SA 3.0",
        citation="The TensorFlow Federated authors, Stack Overflow dataset, 2019; Reddi et al., 2021",
        remotes=(
            Remote(
                f"{_TFF}/stackoverflow.word_count.tar.bz2",
                "stackoverflow/stackoverflow.word_count.tar.bz2",
                "sha256:1dc00256d6e527c54b9756d968118378ae14e6692c0b3b6cad470cdd3f0c519c",
                unpack="stackoverflow",
            ),
            Remote(
                f"{_TFF}/stackoverflow.tar.bz2",
                "stackoverflow/stackoverflow.tar.bz2",
                "sha256:99eca2f8b8327a09e5fc123979df2d237acbc5e52322f6d86bf523ee47b961a2",
                unpack="stackoverflow",
            ),
        ),
    ),
    FileSource(
        "svhn",
        "99,289 colour digits of 32 x 32 pixels from house numbers",
        10,
        svhn.svhn,
        svhn.LAYOUTS,
        page=f"{_SVHN}/",
        licence="for non-commercial use only",
        citation="Netzer et al., Reading digits in natural images with unsupervised feature learning, 2011",
        remotes=(
            Remote(f"{_SVHN}/train_32x32.mat", "SVHN/train_32x32.mat", "md5:e26dedcc434d2e4c54c9b2d4a06d8373"),
            Remote(f"{_SVHN}/test_32x32.mat", "SVHN/test_32x32.mat", "md5:eb5a983be6a315427106f1b164d9cef3"),
        ),
    ),
    FileSource(
        "usps",
        "9,298 grey digits of 16 x 16 pixels from envelopes",
        10,
        usps.usps,
        usps.LAYOUTS,
        page="https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html#usps",
        licence="none stated",
        citation="Hull, A database for handwritten text recognition research, 1994",
        remotes=(
            Remote(f"{_LIBSVM}/usps.bz2", "usps/usps.bz2", "md5:ec16c51db3855ca6c91edd34d0e9b197"),
            Remote(f"{_LIBSVM}/usps.t.bz2", "usps/usps.t.bz2", "md5:8ea070ee2aca1ac39742fdd1ef5ed118"),
        ),
    ),
    FileSource(
        "tiny-imagenet",
        "110,000 colour images of 64 x 64 pixels",
        200,
        tiny_imagenet.tiny_imagenet,
        tiny_imagenet.LAYOUTS,
        page="http://cs231n.stanford.edu/",
        licence="for non-commercial research (ImageNet)",
        citation="Le and Yang, Tiny ImageNet visual recognition challenge, 2015",
        remotes=(
            Remote(
                "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                "tiny-imagenet-200.zip",
                "md5:90528d7ca1a48142e341f4ef8d21d0de",
                unpack=".",
            ),
        ),
    ),
    FileSource(
        "pacs",
        "9,991 pictures as photos, paintings, cartoons and sketches, by domain",
        7,
        domains.pacs,
        domains.PACS_LAYOUTS,
        page="https://domaingeneralization.github.io",
        licence="for research",
        citation="Li et al., Deeper, broader and artier domain generalization, 2017",
    ),
    FileSource(
        "office-caltech-10",
        "2,533 pictures of objects from 4 sources, by domain",
        10,
        domains.office_caltech10,
        domains.OFFICE_CALTECH10_LAYOUTS,
        page="https://faculty.cc.gatech.edu/~judy/domainadapt/",
        licence="none stated",
        citation="Gong et al., Geodesic flow kernel for unsupervised domain adaptation, 2012",
    ),
    FileSource(
        "office-31",
        "4,110 pictures of office objects from 3 sources, by domain",
        31,
        domains.office31,
        domains.OFFICE31_LAYOUTS,
        page="https://faculty.cc.gatech.edu/~judy/domainadapt/",
        licence="none stated",
        citation="Saenko et al., Adapting visual category models to new domains, 2010",
    ),
    FileSource(
        "office-home",
        "15,588 pictures as art, clip art, products and photos, by domain",
        65,
        domains.office_home,
        domains.OFFICE_HOME_LAYOUTS,
        page="https://www.hemanthdv.org/officeHomeDataset.html",
        licence="for non-commercial research",
        citation="Venkateswara et al., Deep hashing network for unsupervised domain adaptation, 2017",
    ),
)

FILES: dict[str, FileSource] = {entry.name: entry for entry in _ENTRIES}
"""Every data set in files that can be read by name."""

__all__ = [
    "FILES",
    "FileSource",
    "Remote",
    "load",
    "named",
]
