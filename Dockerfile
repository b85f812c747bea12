# docker build -t unchoke .
# docker run --rm -v "$PWD:/data" unchoke demo
# docker run --rm --gpus all -v "$PWD:/data" unchoke fit photos/
#
# PyTorch's default package runs on a CPU and on NVIDIA GPUs. TORCH_INDEX is the address of another build, such as the smaller one for CPUs alone.
FROM python:3.12-slim
ARG EXTRAS=demo,export,geo
ARG TORCH_INDEX=
WORKDIR /opt/unchoke
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN if [ -n "$TORCH_INDEX" ]; then PIP_INDEX_URL="$TORCH_INDEX" pip install --no-cache-dir torch torchvision; fi \
    && pip install --no-cache-dir -c constraints.txt ".[$EXTRAS]"
WORKDIR /data
ENTRYPOINT ["unchoke"]
