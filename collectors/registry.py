"""Every kind of source: the scheme of a SPEC to the collector that reads it. A new one is a file and a line here."""

from collections.abc import Callable, Mapping

from collectors.collector import Collector, SourceError, SourceSettings
from collectors.follow import FileCollector
from collectors.journal import JournalCollector
from collectors.kmsg import KmsgCollector
from collectors.scrape import ScrapeCollector

Factory = Callable[[str, SourceSettings], Collector]

SCHEMES: Mapping[str, Factory] = {
    "file": FileCollector,
    "journal": JournalCollector,
    "kmsg": KmsgCollector,
    "scrape": ScrapeCollector,
}


def make_collector(spec: str, settings: SourceSettings) -> Collector:
    """The collector of a SPEC (`kmsg`, `file:PATH:FORMAT`, `scrape:URL` ...).

    Raises:
        SourceError: the SPEC is not understood; the message says what would be.
    """
    scheme, _colon, rest = spec.partition(":")
    factory = SCHEMES.get(scheme)
    if factory is None:
        raise SourceError(f"{spec!r} is no source: use kmsg, journal, file:PATH[:FORMAT] or scrape:URL")
    return factory(rest, settings)
