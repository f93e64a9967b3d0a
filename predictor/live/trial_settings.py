"""When a challenger has been judged enough; apart from `trial.py`, so that the server need not load what that needs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrialSettings:
    """How champion and challengers are judged.

    Attributes:
        every_h: how often each model scores, to be judged later.
        least_days, least_outages: before so much has come, nobody is promoted.
        most_days: who has not shown itself better by then is rejected.
        sure: in so many draws of the nodes a challenger must be the better one.
        keep_days: for how long anything said is kept.
        calibration_days: over which time scores are held against what came.
    """

    every_h: float = 12.0
    least_days: float = 14.0
    most_days: float = 56.0
    least_outages: int = 20
    sure: float = 0.9
    keep_days: float = 70.0
    calibration_days: float = 28.0
