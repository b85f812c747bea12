"""Small pictures as text: a decoded image to a data URI that a page can hold, and the test whether a text is one."""

from __future__ import annotations

import base64
import io
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_JPEG_QUALITY = 80
_DATA_URI = re.compile(r"data:image/(jpeg|png);base64,[A-Za-z0-9+/]+={0,2}")


def make_thumbnail(image_hwc: NDArray[np.uint8], *, side_px: int = 160) -> str:
    """The image within a square of `side_px`, proportions kept, as a JPEG data URI. Grey and RGBA images are shown as RGB."""
    from PIL import Image

    pixels = image_hwc[..., 0] if image_hwc.ndim == 3 and image_hwc.shape[2] == 1 else image_hwc
    picture = Image.fromarray(pixels).convert("RGB")
    picture.thumbnail((side_px, side_px), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=_JPEG_QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def make_sharp_thumbnail(image_hwc: NDArray[np.uint8]) -> str:
    """An RGB picture of few colours (a painted mask), pixel for pixel, as a PNG data URI."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image_hwc).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def safe_thumbnail(value: Any) -> str | None:
    """`value` if it is a JPEG or PNG data URI and nothing else, otherwise None."""
    return value if isinstance(value, str) and _DATA_URI.fullmatch(value) else None
