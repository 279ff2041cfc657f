"""Models: checkpoints that users keep under a name, version by version

Revision ID: 0031
Revises: 0030
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from migrations.turns import limit_lock_waits

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.create_table(
        "models",
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("visibility", sa.String(8), nullable=False),
        sa.Column("last_version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "name", name="pk_models"),
    )
    op.create_table(
        "model_versions",
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("trainer", sa.String(40), nullable=False),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("checkpoint_id", sa.String(40), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=True),
        sa.Column("metrics", DOCUMENT, nullable=False),
        sa.Column("card", DOCUMENT, nullable=True),
        sa.Column("files", DOCUMENT, nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["owner", "name"], ["models.owner", "models.name"], name="fk_model_versions_owner_name"
        ),
        sa.PrimaryKeyConstraint("owner", "name", "version", name="pk_model_versions"),
    )
    op.create_index("ix_model_versions_checkpoint_id", "model_versions", ["checkpoint_id"])


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    # The collector removes those of the files that nothing else refers to.
    if op.get_bind().dialect.name == "postgresql":
        files = "SELECT DISTINCT file->>'sha256' FROM model_versions, jsonb_array_elements(files) AS file"
    else:
        files = "SELECT DISTINCT json_extract(value, '$.sha256') FROM model_versions, json_each(files) WHERE true"
    op.execute(f"INSERT INTO garbage (sha256) {files} ON CONFLICT DO NOTHING")
    op.drop_table("model_versions")
    op.drop_table("models")
