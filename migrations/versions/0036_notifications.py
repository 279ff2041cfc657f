"""Notifications: targets of users, what happened, and messages that are to be sent

Revision ID: 0036
Revises: 0035
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from migrations.turns import limit_lock_waits

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
BIG_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
WAITS = sa.text("next_at IS NOT NULL")


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.create_table(
        "notification_targets",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("shown", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("key_id", sa.String(16), nullable=False),
        sa.Column("kinds", sa.Text(), nullable=False),
        sa.Column("jobs", sa.String(8), nullable=False),
        sa.Column("scope", sa.String(8), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("delivered_at", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("failed_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_notification_targets"),
        sa.UniqueConstraint("owner", "name", name="uq_notification_targets_owner"),
    )
    op.create_index("ix_notification_targets_scope", "notification_targets", ["scope"])
    op.create_table(
        "signals",
        sa.Column("id", BIG_KEY, nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("visibility", sa.String(8), nullable=False),
        sa.Column("subject", sa.String(40), nullable=False),
        sa.Column("notify", DOCUMENT, nullable=True),
        sa.Column("data", DOCUMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_signals"),
    )
    op.create_index("ix_signals_owner", "signals", ["owner", "id"])
    op.create_table(
        "messages",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("target_id", sa.String(40), nullable=False),
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("subject", sa.String(40), nullable=False),
        sa.Column("body", DOCUMENT, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_at", sa.BigInteger(), nullable=True),
        sa.Column("leased_until", sa.BigInteger(), nullable=True),
        sa.Column("delivered_at", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_messages"),
    )
    op.create_index("ix_messages_next_at", "messages", ["next_at"], sqlite_where=WAITS, postgresql_where=WAITS)
    op.create_index("ix_messages_owner", "messages", ["owner", "created_at"])
    op.create_index("ix_messages_target_id", "messages", ["target_id", "id"])
    op.create_index("ix_messages_created_at", "messages", ["created_at"])


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_table("messages")
    op.drop_table("signals")
    op.drop_table("notification_targets")
