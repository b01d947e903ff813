# mt-cli on CPUs. It serves its bundled model, or does what it is told:
#   docker build -t mt-cli .
#   docker run --rm -p 8000:8000 mt-cli
#   docker run --rm --user "$(id -u)" -v "$PWD:/work" mt-cli translate de-en -i german.txt -o english.txt
# --build-arg TORCH_INDEX=ADDRESS takes PyTorch from another index (docs/gpu.md#without-a-gpu).
FROM python:3.12-slim
ENV PIP_NO_CACHE_DIR=1 PIP_CONSTRAINT=/mt_cli/constraints.txt
WORKDIR /mt_cli
COPY constraints.txt .
# A layer of its own, by far the largest: a change of the code does not fetch it again.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --no-deps --index-url "$TORCH_INDEX" torch
COPY pyproject.toml README.md LICENSE ./
COPY configs configs
COPY data data
COPY mt_cli mt_cli
RUN pip install '.[export,serve]' && useradd --create-home mt
USER mt
WORKDIR /work
EXPOSE 8000
HEALTHCHECK --start-period=10s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/health')"]
ENTRYPOINT ["mt-cli"]
CMD ["serve", "de-en", "--host", "0.0.0.0"]
