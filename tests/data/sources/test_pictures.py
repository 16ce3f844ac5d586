"""Pictures of one's own in folders: their depth is kept, and nothing is dropped without a word."""

from __future__ import annotations

import struct
import sys
import zlib
from pathlib import Path

import datasets
import numpy as np
import pytest
from PIL import Image

from fedrelay.config.federation import federate
from fedrelay.data import describe
from fedrelay.data.own import from_dataset, from_folder
from fedrelay.errors import BadInput


def save(path: Path, values: np.ndarray, mode: str | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(values)
    (image if mode is None else image.convert(mode)).save(path)
    return path


def folder_of(base: Path, suffix: str, dtype: type, most: dict[str, float], size: int = 8) -> Path:
    """Two classes in two hospitals: a slope up to `most` for one, half of it for the other."""
    slope = np.linspace(0, 1, size * size).reshape(size, size)
    for client, top in most.items():
        for kind, part in (("ill", 1.0), ("well", 0.5)):
            for number in range(4):
                save(base / client / kind / f"{number}{suffix}", (slope * top * part).astype(dtype))
    return base


def deep_colours(size: int) -> bytes:
    """A PNG with 16 bits for each of three colours, which Pillow cannot write."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", size, size, 16, 2, 0, 0, 0)
    pixels = zlib.compress((b"\0" + bytes(6 * size)) * size)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def dicom(path: Path, stored: np.ndarray, **tags: object) -> Path:
    """A small file as a scanner would write it."""
    pydicom = pytest.importorskip("pydicom")
    path.parent.mkdir(parents=True, exist_ok=True)
    meta = pydicom.dataset.FileMetaDataset()
    meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = pydicom.uid.SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = pydicom.uid.generate_uid()
    dataset = pydicom.dataset.FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    dataset.Rows, dataset.Columns = stored.shape[-2:]
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = 16, 12, 11, 0
    for name, value in tags.items():
        setattr(dataset, name, value)
    dataset.PixelData = stored.astype("<u2").tobytes()
    dataset.save_as(path, enforce_file_format=True)
    return path


@pytest.mark.parametrize(
    ("suffix", "dtype", "most"),
    [(".png", np.uint16, 4095.0), (".tif", np.uint16, 60000.0), (".tiff", np.float32, 0.02), (".tif", np.int32, 3e6)],
)
def test_deep_pictures_keep_their_depth_and_are_scaled_by_their_range(tmp_path, suffix, dtype, most):
    federation = from_folder(folder_of(tmp_path, suffix, dtype, {"north": most, "south": most / 2}), size=8, test=0.25)
    x, y = federation.source.train.take(slice(0, 12))
    assert x.shape == (12, 1, 8, 8)
    assert federation.source.owner_names == ("north", "south")
    tops = {
        (int(owner), int(label)): float(each.max())
        for owner, label, each in zip(federation.source.owners, y, x, strict=True)
    }
    expected = {(0, 0): 1.0, (0, 1): 0.0, (1, 0): 0.0, (1, 1): -0.5}  # all, half, half and a quarter of the range
    assert tops == pytest.approx(expected, abs=2e-3)
    assert len(np.unique(x[0].numpy())) == 64  # eight bits would have been enough here, all white would not
    assert federation.source.prepared.messages == (2, 2)


def test_the_levels_of_deep_pictures_can_be_given(tmp_path):
    folder = folder_of(tmp_path, ".png", np.uint16, {"north": 1000.0, "south": 500.0})
    federation, resolved = federate({"name": "folder", "path": str(folder), "size": 8, "levels": [0, 2000]}, seed=0)
    assert float(federation.source.train.x.max()) == pytest.approx(0.5)
    assert resolved["levels"] == [0.0, 2000.0]
    assert federation.source.notes == ("images are scaled from 0 … 2000 to -1 … 1",)


def test_bytes_stay_bytes_in_colour(tmp_path):
    federation = from_folder(folder_of(tmp_path, ".png", np.uint8, {"north": 255.0, "south": 255.0}), size=8)
    assert federation.source.train.shape == (3, 8, 8)
    assert federation.source.notes == ()


def test_pictures_of_different_depth_are_refused_with_their_number(tmp_path):
    folder_of(tmp_path, ".png", np.uint16, {"north": 4000.0})
    folder_of(tmp_path, ".png", np.uint8, {"south": 255.0})
    message = (
        r"one depth, found 8 of 8 bits \(the first south/ill/0.png\) and 8 grey ones with more \(the first north/ill"
    )
    with pytest.raises(BadInput, match=message):
        from_folder(tmp_path, size=8)


def test_colours_of_16_bits_are_refused_by_name(tmp_path):
    folder_of(tmp_path, ".png", np.uint8, {"north": 255.0})
    (tmp_path / "north" / "ill" / "0.png").write_bytes(deep_colours(8))
    message = r"0.png: expected 8 bits a colour, or grey, found colours \(or transparency\) of 16 bits"
    with pytest.raises(BadInput, match=message):
        from_folder(tmp_path, size=8)


def test_what_is_transparent_is_refused_by_name_or_laid_on_the_background(tmp_path):
    folder_of(tmp_path, ".png", np.uint8, {"north": 255.0})
    half = np.full((8, 8, 4), 200, np.uint8)
    half[..., 3] = 127
    save(tmp_path / "north" / "ill" / "0.png", half)
    with pytest.raises(
        BadInput, match=r'0.png: expected a picture without transparent parts, .*alpha down to 127 .*"white"'
    ):
        from_folder(tmp_path, size=8)
    for background, below in (("black", 0), ("#ffffff", 255)):
        federation = from_folder(tmp_path, size=8, background=background)
        both = np.concatenate([federation.source.train.x.numpy(), federation.test.x.numpy()])
        mixed = 200 * 127 / 255 + below * 128 / 255
        assert any(np.abs(each - mixed).max() < 1.5 for each in both.astype(float))
    with pytest.raises(BadInput, match="background must be a colour such as white or #ffffff, not 'whitish'"):
        from_folder(tmp_path, size=8, background="whitish")


def test_alpha_that_hides_nothing_is_no_matter(tmp_path):
    folder_of(tmp_path, ".png", np.uint8, {"north": 255.0})
    save(tmp_path / "north" / "ill" / "0.png", np.full((8, 8, 4), 255, np.uint8))
    assert len(from_folder(tmp_path, size=8).source.train) > 0


def test_dicom_pictures_are_read_in_their_own_unit(tmp_path):
    slope = np.arange(64).reshape(8, 8) * 10
    for number in range(4):
        dicom(tmp_path / "north" / "ill" / f"{number}.dcm", slope, RescaleSlope=2, RescaleIntercept=-1000)
        dicom(tmp_path / "north" / "well" / f"{number}.dcm", slope, PhotometricInterpretation="MONOCHROME1")
    source = from_folder(tmp_path, size=8, levels=(-1000.0, 5000.0)).source
    ill = source.train.x[source.train.y == 0][0, ..., 0].numpy() * 6000 - 1000
    well = source.train.x[source.train.y == 1][0, ..., 0].numpy() * 6000 - 1000
    assert np.allclose(ill, 2 * slope - 1000, atol=0.01)
    assert np.allclose(well, 4095 - slope, atol=0.01)  # 12 bits, and the largest of them is black


def test_a_dicom_file_of_several_frames_or_a_damaged_one_is_refused_by_name(tmp_path):
    path = dicom(tmp_path / "north" / "ill" / "a.dcm", np.zeros((3, 8, 8)), NumberOfFrames=3)
    dicom(tmp_path / "north" / "ill" / "b.dcm", np.ones((8, 8)))
    with pytest.raises(
        BadInput, match=r"a.dcm: expected one grey DICOM picture, found MONOCHROME2 of shape \(3, 8, 8\)"
    ):
        from_folder(tmp_path, size=8)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(BadInput, match=r"a.dcm: expected a DICOM picture, found a damaged or other file"):
        from_folder(tmp_path, size=8)


def test_dicom_without_pydicom_says_what_to_install(tmp_path, monkeypatch):
    dicom(tmp_path / "north" / "ill" / "a.dcm", np.zeros((8, 8)))
    dicom(tmp_path / "north" / "ill" / "b.dcm", np.zeros((8, 8)))
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(BadInput, match=r'needs pydicom: pip install "fedrelay\[dicom\]"'):
        from_folder(tmp_path, size=8)


def test_files_that_are_left_out_are_counted_and_listed(tmp_path, caplog):
    folder_of(tmp_path, ".png", np.uint8, {"north": 255.0})
    for name in ("north/ill/scan.nii", "north/notes.txt", "readme.md", "north/ill/.hidden"):
        (tmp_path / name).write_text("x")
    federation = from_folder(tmp_path, size=8)
    note = (
        "3 files are left out, because they are no images in <client>/<class>: "
        "north/ill/scan.nii, north/notes.txt, readme.md"
    )
    assert federation.source.notes == (note,)
    assert describe(federation)["notes"] == [note]
    assert f"{tmp_path.name}: {note}" in caplog.messages


def test_grey_images_among_coloured_ones_and_frames_that_are_not_taken_are_told(tmp_path):
    folder_of(tmp_path, ".png", np.uint8, {"north": 255.0})
    save(tmp_path / "north" / "ill" / "0.png", np.zeros((8, 8, 3), np.uint8))
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "north" / "ill" / "1.png", save_all=True, append_images=frames[1:])
    assert from_folder(tmp_path, size=8).source.notes == (
        "6 grey images are taken in colour, as the 2 others are",
        "of 1 images with several frames only the first is taken",
    )
    again = from_folder(tmp_path, size=8)  # from the cache
    assert len(again.source.notes) == 2


def test_classes_that_differ_only_in_writing_are_refused(tmp_path):
    folder_of(tmp_path, ".png", np.uint8, {"north": 255.0, "south": 255.0})
    (tmp_path / "south" / "ill").rename(tmp_path / "south" / "Ill")
    with pytest.raises(
        BadInput, match=r"classes to be written alike at every client, found 'ill' at north and 'Ill' at south"
    ):
        from_folder(tmp_path, size=8)


def hugging_face(images: list[Image.Image]) -> datasets.Dataset:
    features = {"image": datasets.Image(), "label": datasets.Value("int64"), "who": datasets.Value("string")}
    rows = {"image": images, "label": [i % 2 for i in range(len(images))], "who": ["a"] * len(images)}
    return datasets.Dataset.from_dict(rows, features=datasets.Features(features))


def test_images_of_a_hugging_face_data_set_are_treated_alike():
    slope = np.linspace(0, 4000, 64).reshape(8, 8).astype(np.uint16)
    federation = from_dataset(hugging_face([Image.fromarray(slope)] * 4), client="who")
    x, _ = federation.source.train.take(slice(0, 1))
    assert float(x.min()) == pytest.approx(-1)
    assert float(x.max()) == pytest.approx(1)
    grey, colour = Image.new("L", (8, 8), 9), Image.new("RGB", (8, 8), "red")
    assert from_dataset(hugging_face([grey, colour] * 2), client="who").source.train.shape == (3, 8, 8)
    with pytest.raises(
        BadInput, match="images of one depth in column 'image', found 2 of 8 bits and 2 grey ones with more"
    ):
        from_dataset(hugging_face([grey, Image.fromarray(slope)] * 2), client="who")
    ghost = Image.new("RGBA", (8, 8), (1, 2, 3, 0))
    with pytest.raises(BadInput, match=r"column 'image', row 1: expected a picture without transparent parts"):
        from_dataset(hugging_face([colour, ghost] * 2), client="who")
