"""Extensions that plugins bring. Free of torch and numpy."""

from fv_core.extend.contract import At, Interceptor, InterceptorSpec

__all__ = ["At", "Interceptor", "InterceptorSpec"]
