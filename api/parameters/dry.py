"""The parameter of stops that are not done."""

from typing import Annotated

from fastapi import Query

DryRun = Annotated[
    bool, Query(description="do nothing, and answer 200 with what the stop would cost: what is lost without a save")
]
