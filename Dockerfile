# mt-cli on CPUs, with its ready model:
#   docker build -t mt-cli .
#   docker run --rm -it -v "$PWD:/work" mt-cli translate /mt_cli/data/models/de-en
# --build-arg TORCH_INDEX=ADDRESS takes PyTorch from another index (docs/gpu.md#without-a-gpu).
FROM python:3.12-slim
ARG TORCH_INDEX
WORKDIR /mt_cli
COPY . .
RUN scripts/setup
ENV PATH="/mt_cli/.venv/bin:$PATH"
WORKDIR /work
ENTRYPOINT ["mt-cli"]
