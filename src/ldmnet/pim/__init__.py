"""The point integral method: from W and v to u, eq. (19)."""

from ldmnet.pim.grouped import solve_grouped
from ldmnet.pim.solve import Solution, Status, pcg
from ldmnet.pim.system import Mass, PointIntegralSystem

__all__ = ["Mass", "PointIntegralSystem", "Solution", "Status", "pcg", "solve_grouped"]
