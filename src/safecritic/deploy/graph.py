"""The deployed network as an ONNX graph: `runtime.decide`, traced with ndonnx.

observation (N, O), remaining budget (N,), screen () bool -> the fields of `decide.Choice` there are
"""

from typing import Any

import jax
import numpy as np

from safecritic.runtime import decide
from safecritic.runtime.network import Network


class Traced:
    """The array module ndonnx, its products as plain nodes.

    Its own matmul guards against empty arrays with an `If` each, which costs ten times the tracing.
    """

    def __init__(self) -> None:
        try:
            import ndonnx
            import spox.opset.ai.onnx.v21 as operators
        except ImportError as error:
            raise ImportError(
                "an ONNX graph needs ndonnx: pip install 'safecritic[deploy]', or leave the graph "
                "out (--no-onnx); NumPy then runs the file"
            ) from error
        self.ndonnx, self.operators = ndonnx, operators

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ndonnx, name)

    def matmul(self, left: Any, right: Any) -> Any:
        product = self.operators.matmul(left.unwrap_spox(), right.unwrap_spox())
        return self.ndonnx.asarray(product)


def build(network: Network) -> bytes:
    """Return the graph as an ONNX model."""
    xp = Traced()

    def constant(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return xp.asarray(value)
        return float(value) if isinstance(value, np.floating) else value

    inputs = {
        "observation": xp.argument(shape=("N", network.obs_dim), dtype=xp.float32),
        "remaining": xp.argument(shape=("N",), dtype=xp.float32),
        "screen": xp.argument(shape=(), dtype=xp.bool),
    }
    choice = decide.decide(xp, jax.tree.map(constant, network.parts), *inputs.values())
    outputs = {name: array for name, array in choice._asdict().items() if array is not None}
    # the actor alone looks at the observation, but the inputs are the same for all policies
    model: Any = xp.build(inputs, outputs)
    return bytes(model.SerializeToString())
