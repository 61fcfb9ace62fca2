"""Speed, memory and error of attention and of whole models, as ratios to named peers measured in the same run."""

from .attention import Row, bench_attention
from .models import ModelBench, ModelRow, bench_model
from .settings import AttentionBench

__all__ = ["AttentionBench", "ModelBench", "ModelRow", "Row", "bench_attention", "bench_model"]
