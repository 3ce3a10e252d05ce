"""Extensions that plugins bring. Free of torch and numpy."""

from fv_core.extend.contract import At, Interceptor, InterceptorSpec
from fv_core.extend.training import RewardSpec, TrainingMethodSpec

__all__ = ["At", "Interceptor", "InterceptorSpec", "RewardSpec", "TrainingMethodSpec"]
