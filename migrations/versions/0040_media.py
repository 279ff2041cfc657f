"""Media: what runs show, at their keys and steps

Revision ID: 0040
Revises: 0039
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from migrations.turns import limit_lock_waits

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.create_table(
        "media",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("key", sa.String(200), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("caption", sa.Text(), nullable=True),
        sa.Column("classes", DOCUMENT, nullable=True),
        sa.Column("data", DOCUMENT, nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_media_job_id"),
        sa.PrimaryKeyConstraint("id", name="pk_media"),
        sa.UniqueConstraint("job_id", "key", "step", "number", name="uq_media_job_id_key_step_number"),
    )
    op.create_table(
        "media_pictures",
        sa.Column("media_id", sa.String(40), nullable=False),
        sa.Column("part", sa.String(16), nullable=False),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("media_type", sa.String(20), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("width", sa.Integer(), nullable=False),
        sa.Column("height", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["media_id"], ["media.id"], name="fk_media_pictures_media_id"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_media_pictures_job_id"),
        sa.PrimaryKeyConstraint("media_id", "part", name="pk_media_pictures"),
    )
    op.create_index("ix_media_pictures_sha256", "media_pictures", ["sha256"])
    op.create_index("ix_media_pictures_job_id", "media_pictures", ["job_id"])


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    # The collector removes those of the files that nothing else refers to.
    op.execute(
        "INSERT INTO garbage (sha256) SELECT DISTINCT sha256 FROM media_pictures WHERE true ON CONFLICT DO NOTHING"
    )
    op.drop_table("media_pictures")
    op.drop_table("media")
