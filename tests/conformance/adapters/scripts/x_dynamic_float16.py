"""x-transformers: the dynamic position bias raises after `.half()`, because it makes its positions in float32.
Subject: x-transformers DynamicPositionBias; check: float16, distinct; right: 0
"""

from x_transformers.x_transformers import DynamicPositionBias

try:
    DynamicPositionBias(16, heads=4, depth=2).half()(1, 8)
    print(0.0)
except RuntimeError:
    print(1.0)
