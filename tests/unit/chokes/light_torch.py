"""Scripts that train in a process of their own: torch without the tracer of `torch.compile`, which doubles its loading time."""

LIGHT_TORCH = """\
import sys, types, torch
sys.modules["torch._dynamo"] = torch._dynamo = types.SimpleNamespace(
    disable=lambda function, *_, **__: function, graph_break=lambda *_, **__: None
)
"""
