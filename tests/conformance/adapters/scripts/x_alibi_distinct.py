"""x-transformers: after `.bfloat16()` most neighbouring keys share one ALiBi bias at 4096 keys.
Subject: x-transformers AlibiPositionalBias; check: distinct; right: 0
"""

from x_transformers.x_transformers import AlibiPositionalBias

row = AlibiPositionalBias(8).bfloat16()(1, 4096)[:, 0]
print(int((row[:, 1:] == row[:, :-1]).sum()))
