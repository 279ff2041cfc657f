"""What targets are told of a sweep that has ended."""

from sqlalchemy.orm import Session

from store.notifications import signals
from store.notifications.signals import SweepSubject
from store.sweeps import trials
from store.tables import Sweep
from torchyard.contract.notifications import EventKind


def signal(session: Session, sweep: Sweep) -> None:
    """Adds the signal that the sweep has ended, with its state and its best trial."""
    subject = SweepSubject(sweep.id, sweep.name, sweep.owner, sweep.visibility)
    if not signals.wanted(session, EventKind.SWEEP_FINISHED, sweep=subject):
        return
    counts = {str(state): count for state, count in trials.counts(session, [sweep.id])[sweep.id].items() if count}
    parts = [f"{count} {state}" for state, count in counts.items()]
    found, told = trials.best(session, sweep), None
    if found is not None:
        told = {"number": found.trial.number, "job_id": found.trial.job_id, "value": found.trial.value}
        parts.append(f"the best is trial {found.trial.number} with {sweep.monitor} {found.trial.value:.6g}")
    text = signals.brief(f"{sweep.state}: {sweep.reason_message}; {', '.join(parts)}")
    data = {"state": sweep.state, "trials": counts, "best": told, "text": text}
    signals.add(session, EventKind.SWEEP_FINISHED, sweep=subject, data=data)
