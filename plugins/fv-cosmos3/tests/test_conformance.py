"""The tiny card keeps to everything that authors' cards are held to."""

from __future__ import annotations

from fv_core.program import InputSpec
from fv_core.request import Modality, Request, Size, TaskType
from fv_core.runtime.records.samples import sample
from fv_core.testing import CardConformance

_SIZE = (24, 16)
_IMAGE = sample(InputSpec(modality=Modality.IMAGE), Size(*_SIZE), 1)
_VIDEO = sample(InputSpec(modality=Modality.VIDEO), Size(*_SIZE), 5)


def _request(task: TaskType, seed: int, **more: object) -> Request:
    asked: dict[str, object] = {
        "prompt": "a red circle",
        "task": task,
        "seed": seed,
        "model": "cosmos3/tiny",
        **more,
    }
    return Request(**asked)  # type: ignore[arg-type]


class TestTiny(CardConformance):
    card_id = "cosmos3/tiny"
    requests = (
        _request(
            TaskType.T2V,
            1,
            size=_SIZE,
            frames=9,
            steps=3,
            params={"audio": True, "think": True, "max_tokens": 4},
        ),
        _request(TaskType.V2V, 2, size=_SIZE, frames=9, steps=2, inputs=(_VIDEO,), guidance=1.0),
        _request(TaskType.QA, 3, params={"max_tokens": 6, "temperature": 1.0}),
        _request(TaskType.POLICY, 4, frames=5, steps=2, inputs=(_IMAGE,)),
    )
