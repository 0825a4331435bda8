"What every attack counts: how often it tried, how often the package held, the worst time and the worst memory, and what fell."
from dataclasses import dataclass, field

SHOWN = 8   # of what fell; the rest is counted


@dataclass
class Tally:
    "One row of the table. A try that did not hold says in a sentence what happened."
    attack: str
    tries: int = 0
    held: int = 0
    worst_s: float = 0.0
    worst_mb: int | None = None    # None: not measured
    fell: list[str] = field(default_factory=list)
    notes: dict = field(default_factory=dict)

    def add(self, what: str, fault: str = '', seconds: float = 0.0, mb: int | None = None):
        "Counts a try: `fault` says what fell, '' that nothing did."
        self.tries += 1
        self.held += not fault
        self.worst_s = max(self.worst_s, seconds)
        if mb is not None: self.worst_mb = max(mb, self.worst_mb or 0)
        if fault: self.fell.append(f'{what}: {fault}'[:300])

    def row(self) -> dict:
        "The row as plain values."
        more = {'fell': self.fell[:SHOWN] + ([f'and {len(self.fell) - SHOWN} more'] if len(self.fell) > SHOWN else [])} if self.fell else {}
        return {'attack': self.attack, 'tries': self.tries, 'survived': self.held, 'worst_seconds': round(self.worst_s, 2),
                'worst_memory_mb': self.worst_mb, **more, **({'notes': self.notes} if self.notes else {})}
