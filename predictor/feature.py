"""One feature: its name, the group it is explained with, and how the model may use it."""

from dataclasses import dataclass

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Feature:
    """A column of the dataset.

    Attributes:
        name: the column; carries its unit or window (`ecc_sbe_7d`, `gpu_temp_max_c`).
        group: features of one group are explained together.
        reference: its value where nothing has happened; NaN = unknown, None = what is usual in the fleet at the moment.
        monotonic: 1 where more of it never lowers the risk, -1 where it never raises it, 0 free.
    """

    name: str
    group: str
    reference: float | None = 0.0
    monotonic: int = 0
