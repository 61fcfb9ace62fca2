"""What an encoding, or a trained model, says about distance."""

from .resolution import analytic_scores, measured_scores, resolution, resolutions

__all__ = ["analytic_scores", "measured_scores", "resolution", "resolutions"]
