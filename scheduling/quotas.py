"""How many devices and running jobs a user may have at once."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Allowance:
    """What the running jobs of one user may hold at once, and hold. A limit of None: unlimited."""

    owner: str
    devices: int | None
    running: int | None
    held: int = 0
    """Devices."""
    runs: int = 0
    """Jobs."""

    def refusal(self, devices: int) -> str | None:
        """Returns why one more job with so many devices may not start now; None if it may."""
        if self.devices is not None and devices > self.devices:
            return (
                f"needs {devices} devices; the quota of {self.owner} allows {self.devices}: request fewer, or raise it"
            )
        if self.devices is not None and self.held + devices > self.devices:
            return f"needs {devices} devices; {self.owner} holds {self.held} of {self.devices} (quota)"
        if self.running is not None and self.runs + 1 > self.running:
            jobs = "job" if self.running == 1 else "jobs"
            return f"{self.owner} runs {self.runs} of {self.running} {jobs} (quota)"
        return None

    def with_job(self, devices: int) -> "Allowance":
        """Returns the allowance after one more job with so many devices has started."""
        return replace(self, held=self.held + devices, runs=self.runs + 1)

    def without_job(self, devices: int) -> "Allowance":
        """Returns the allowance after a job with so many devices has ended."""
        return replace(self, held=max(0, self.held - devices), runs=max(0, self.runs - 1))
