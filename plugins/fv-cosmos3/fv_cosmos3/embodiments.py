"""What the action modes know: embodiments, canvases and camera views. Free of torch.

Facts of diffusers 0.42.1, `pipelines.cosmos.pipeline_cosmos3_omni`; embodiments without a fixed width are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fv_core.request import Size


@dataclass(frozen=True, slots=True)
class Embodiment:
    """`domain` selects the weights of the action projections; an action has `width` numbers."""

    domain: int
    width: int


EMBODIMENTS: Final = {
    "av": Embodiment(1, 9),
    "camera_pose": Embodiment(2, 9),
    "hand_pose": Embodiment(3, 57),
    "pusht": Embodiment(4, 2),
    "umi": Embodiment(6, 10),
    "bridge_orig_lerobot": Embodiment(7, 10),
    "droid_lerobot": Embodiment(8, 10),
    "robomind-franka": Embodiment(8, 10),
    "galbot": Embodiment(9, 30),
    "robomind-franka-dual": Embodiment(12, 20),
    "robomind-ur": Embodiment(13, 10),
    "agibotworld": Embodiment(15, 29),
    "agibot_gear_gripper": Embodiment(15, 29),
    "agibot_gear_gripper_ext": Embodiment(15, 29),
    "fractal": Embodiment(20, 10),
}

VIEWS: Final = {
    "ego_view": "This video is captured from a first-person perspective looking at the scene.",
    "third_person_view": (
        "This video is captured from a third-person perspective looking towards the agent from the front."
    ),
    "wrist_view": "This video is captured from a wrist-mounted camera.",
    "concat_view": "This video contains concatenated views from multiple camera perspectives.",
}
"""Camera views and the sentence that the action model was trained with for each."""

CANVASES: Final = {
    "256": (Size(256, 256), Size(320, 256), Size(256, 320), Size(320, 192), Size(192, 320)),
    "480": (Size(640, 640), Size(736, 544), Size(544, 736), Size(832, 480), Size(480, 832)),
    "704": (Size(960, 960), Size(1088, 832), Size(832, 1088), Size(1280, 704), Size(704, 1280)),
    "720": (Size(960, 960), Size(1104, 832), Size(832, 1104), Size(1280, 720), Size(720, 1280)),
}
"""The canvases of each tier; an input is laid into the one closest in aspect ratio."""


def canvas(tier: str, size: Size) -> Size:
    """The canvas of the tier for an input of this size."""
    return min(CANVASES[tier], key=lambda one: abs(one.height / one.width - size.height / size.width))
