"""The settings of how much of a job's output is stored. Workers and the API read them: each checks what it is given."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from store.output.facts import DEFAULTS, OutputLimits


def _size(value: Any) -> Any:
    return None if value == "" else value


Versions = Annotated[Annotated[int, Field(ge=1, lt=2**31)] | None, BeforeValidator(_size)]
Size = Annotated[Annotated[int, Field(ge=0, lt=2**62)] | None, BeforeValidator(_size)]
"""A number of bytes. Empty: no limit."""


class OutputSettings(BaseModel):
    model_config = ConfigDict(frozen=True)

    max_log_bytes: Size = DEFAULTS.log_bytes
    """Bytes of the log of one attempt that are stored."""
    max_message_bytes: Size = DEFAULTS.message_bytes
    """Bytes of the messages of one attempt that are stored. Messages of the service do not count."""
    max_point_bytes: Size = DEFAULTS.point_bytes
    """Bytes of the metric points of one attempt that are stored, 24 each. Beyond that limit, points are thinned out."""

    max_checkpoints: Size = DEFAULTS.checkpoints
    """Checkpoints of one attempt that are stored. Beyond them, one a minute is."""
    max_versions: Versions = DEFAULTS.versions
    """Whole versions of one captured file that are kept."""
    max_artifacts: Size = DEFAULTS.artifacts
    """Files of one job, in its folder `artifacts`, that are stored."""
    max_media: Size = DEFAULTS.media
    """Items of one job, which its runs show, that are stored."""
    max_artifact_bytes: Size = DEFAULTS.artifact_bytes
    """Bytes of these files and items."""
    max_kept_bytes: Size = DEFAULTS.kept_bytes
    """Bytes of the files of one job's working folder that are kept without a pattern."""

    @property
    def output_limits(self) -> OutputLimits:
        return OutputLimits(
            log_bytes=self.max_log_bytes,
            message_bytes=self.max_message_bytes,
            point_bytes=self.max_point_bytes,
            checkpoints=self.max_checkpoints,
            versions=self.max_versions,
            artifacts=self.max_artifacts,
            media=self.max_media,
            artifact_bytes=self.max_artifact_bytes,
            kept_bytes=self.max_kept_bytes,
        )
