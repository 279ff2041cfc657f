"""${message}

Revision ID: ${up_revision}
Revises: ${down_revision | comma,n}
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits
${imports if imports else ""}

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    ${upgrades if upgrades else ""}


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    ${downgrades if downgrades else ""}
