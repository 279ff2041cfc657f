"""The parameter of stops that are not done."""

from typing import Annotated

from fastapi import Query

DryRun = Annotated[
    bool, Query(description="change nothing; answer 200 and the work that would be lost without a checkpoint")
]
