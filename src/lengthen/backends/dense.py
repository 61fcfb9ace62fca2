"""The oracle: every score at once, quadratic memory. Kept for ever."""

from torch import Tensor

from lengthen.core import Needs, Plan


class Dense:
    """softmax(logits) @ v, as the plan defines it; rows that see nothing give zero."""

    name, serves, value_terms, branches = "dense", Needs.ROW, True, True

    def refusal(self, plan: Plan) -> str | None:
        return None

    def __call__(self, plan: Plan) -> Tensor:
        weights = plan.logits().masked_fill(~plan.visible(), float("-inf")).softmax(-1)
        return plan.values(weights.nan_to_num()).to(plan.v.dtype)
