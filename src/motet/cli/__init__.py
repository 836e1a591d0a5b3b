"""The command `motet`, one file for each verb; the only place that prints, and the only one that catches MotetError.

Must stay light: a verb's module, and with it torch, is imported when the verb is asked for.
"""

__all__: list[str] = []
