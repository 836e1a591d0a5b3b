"""What goes out to other tools: metrics to trackers, a trained model as a Hugging Face folder with its card.

Knows settings, journal and models; knows nothing of how nodes meet, and no run depends on it. Light to import: what
needs torch lies in `motet.integrations.hf_folder` and `motet.integrations.model_card`.
"""

from motet.integrations.trackers import Trackers, make_trackers

__all__ = ["Trackers", "make_trackers"]
