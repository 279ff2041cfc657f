"""Users, tokens, sessions, quotas, secrets and the audit; visibility of jobs; what attempts have stored

Revision ID: 0007
Revises: 0006
"""

import time

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from migrations.turns import limit_lock_waits

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
BIG_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    _create_users()
    _create_quotas_and_secrets()
    _create_audit()
    op.add_column("jobs", sa.Column("visibility", sa.String(8), nullable=False, server_default="private"))
    op.create_index("ix_jobs_visibility_id", "jobs", ["visibility", "id"])
    for name in ("log_bytes", "message_bytes"):
        op.add_column("attempts", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("attempts", sa.Column("cut", sa.String(100), nullable=False, server_default=""))
    op.add_column("checkpoints", sa.Column("size", sa.BigInteger(), nullable=False, server_default="0"))
    _fill_sizes()


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.execute("DELETE FROM idempotency_keys")  # an older program needs their answers
    op.drop_column("checkpoints", "size")
    for name in ("cut", "message_bytes", "log_bytes"):
        op.drop_column("attempts", name)
    op.drop_index("ix_jobs_visibility_id", "jobs")
    op.drop_column("jobs", "visibility")
    for table in ("audit", "secrets", "quotas", "browser_sessions", "tokens", "users"):
        op.drop_table(table)


def _create_users() -> None:
    users = op.create_table(
        "users",
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("disabled_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("name", name="pk_users"),
    )
    # The owner of every job so far.
    op.bulk_insert(users, [{"name": "admin", "role": "admin", "created_at": time.time_ns() // 1000}])
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("user", sa.String(100), nullable=False),
        sa.Column("made_by", sa.String(40), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("scopes", DOCUMENT, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("used_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.ForeignKeyConstraint(["user"], ["users.name"], name="fk_tokens_user"),
    )
    op.create_index("ix_tokens_user", "tokens", ["user"])
    op.create_index("ix_tokens_made_by", "tokens", ["made_by"])
    op.create_table(
        "browser_sessions",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("credential", sa.String(64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_browser_sessions"),
    )
    op.create_index("ix_browser_sessions_expires_at", "browser_sessions", ["expires_at"])


def _create_quotas_and_secrets() -> None:
    op.create_table(
        "quotas",
        sa.Column("kind", sa.String(4), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("resource", sa.String(20), nullable=False),
        sa.Column("limit", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("kind", "name", "resource", name="pk_quotas"),
        sa.CheckConstraint("kind IN ('role', 'user')", name="ck_quotas_kind"),
    )
    op.create_table(
        "secrets",
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.Column("key_id", sa.String(16), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "name", name="pk_secrets"),
    )


def _create_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", BIG_KEY, nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("who", sa.String(100), nullable=False),
        sa.Column("token_id", sa.String(40), nullable=True),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("action", sa.String(40), nullable=False),
        sa.Column("object", sa.Text(), nullable=False),
        sa.Column("outcome", sa.String(40), nullable=False),
        sa.Column("request_id", sa.String(100), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )


def _fill_sizes() -> None:
    connection = op.get_bind()
    checkpoints = sa.table(
        "checkpoints", sa.column("id", sa.String), sa.column("files", DOCUMENT), sa.column("size", sa.BigInteger)
    )
    rows = connection.execute(sa.select(checkpoints.c.id, checkpoints.c.files)).all()
    sizes = [{"checkpoint": row.id, "bytes": sum(file["size"] for file in row.files)} for row in rows if row.files]
    if sizes:
        statement = sa.update(checkpoints).where(checkpoints.c.id == sa.bindparam("checkpoint"))
        connection.execute(statement.values(size=sa.bindparam("bytes")), sizes)
