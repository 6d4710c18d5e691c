# ksflow in a container, for a CPU or an NVIDIA GPU; docs/gpu_elsewhere.md describes how to build and run the image.
ARG BASE=debian:bookworm-slim
FROM ${BASE}

# Which torch: what is handed to pip. Empty takes a CPU build, as there is no GPU while an image is built.
ARG TORCH=""

# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates g++ git make python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/ksflow
COPY . .
RUN PIP_NO_CACHE_DIR=1 TORCH="${TORCH}" .ci/install /opt/venv
ENV PATH=/opt/venv/bin:${PATH}

# What runs leave: mount a folder here.
WORKDIR /work
ENTRYPOINT ["ksflow"]
CMD ["doctor"]
