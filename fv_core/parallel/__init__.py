"""Parallel plans as data: named axes and their degrees. Free of torch and numpy."""

from fv_core.parallel.plan import UNIMPLEMENTED, Axis, ParallelPlan

__all__ = ["UNIMPLEMENTED", "Axis", "ParallelPlan"]
