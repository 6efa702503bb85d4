"""What data sets lack for evaluations, and what to do where a result is missing."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Lack:
    """What a run's data set lacks, so that not every evaluation can be made of it.

    Args:
        data: its name.
        labels: whether it is labels of two classes or more; otherwise it is only test images.
        remedy: what would do, such as "put images into ... and prepare it again"; or empty.
    """

    data: str
    labels: bool = False
    remedy: str = ""

    @property
    def reason(self) -> str:
        """Why something was not measured."""
        what = "labels of two classes or more" if self.labels else "labelled test images"
        return f"that takes {what}, which {self.data} does not have"


def advice(lack: Lack | None, usual: str, without_tests: str = "") -> str:
    """What to do about something that was not measured.

    Args:
        lack: of the data set, if anything.
        usual: which command measures it, as in "dsf eval RUN linear makes one".
        without_tests: which one does where there are no test images; empty if none does.

    Example:
        >>> advice(None, "dsf eval RUN linear makes one")
        'dsf eval RUN linear makes one.'
        >>> advice(Lack("folder:photos"), "dsf eval RUN linear makes one")
        'that takes labelled test images, which folder:photos does not have.'
    """
    if lack is None:
        return f"{usual}."
    if without_tests and not lack.labels:
        return f"{without_tests}."
    return f"{'; '.join(filter(None, (lack.reason, lack.remedy)))}."
