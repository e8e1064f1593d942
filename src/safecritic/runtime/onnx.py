"""The network of a policy file as its ONNX graph, in ONNX Runtime on one thread."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .file import PolicyFileError
from .network import Decision, Network

OUTPUTS = ("action", "unit_action", "proposed", "q_cost", "influence", "screened", "changed")
ON, OFF = np.array(True), np.array(False)


class Graph:
    """A session of ONNX Runtime with the outputs of `Network.decide`."""

    def __init__(self, graph: bytes, network: Network):
        try:
            import onnxruntime
        except ImportError as error:
            raise ImportError(
                "engine 'onnx' needs ONNX Runtime: pip install onnxruntime, or use engine='numpy'"
            ) from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self.session = onnxruntime.InferenceSession(
                graph, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its exceptions have no common base
            raise PolicyFileError(f"ONNX Runtime refuses the graph: {error}") from error
        shape = self.session.get_inputs()[0].shape
        if shape[1:] != [network.obs_dim]:
            raise PolicyFileError(
                f"the graph takes observations of shape {shape}, the contract says "
                f"{network.obs_dim} numbers"
            )
        try:
            self._one = self._bound(onnxruntime.OrtValue.ortvalue_from_numpy, network)
        except Exception as error:
            raise PolicyFileError(f"ONNX Runtime cannot run the graph: {error}") from error

    def _bound(self, made: Callable[[np.ndarray], Any], network: Network) -> "_OneRow":
        """Return inputs and outputs of one row in places of their own, bound once."""
        row = np.zeros((1, network.obs_dim), np.float32)
        # arrays of their own, which each call writes into
        one = {"observation": row, "left": np.zeros(1, np.float32), "screen": np.array(True)}
        inputs = {name: made(array) for name, array in one.items()}
        outputs = [made(array) for array in self.session.run(OUTPUTS, one)]
        binding = self.session.io_binding()
        for name, value in inputs.items():
            binding.bind_ortvalue_input(name, value)
        for name, value in zip(OUTPUTS, outputs, strict=True):
            binding.bind_ortvalue_output(name, value)
        return _OneRow(binding, inputs, outputs)

    def decide(self, obs: np.ndarray, left: np.ndarray, screen: bool = True) -> Decision:
        """Return the decisions for observations (N, O), both arrays float32."""
        # with an endless budget nothing exceeds a budget's tolerance, so the switch is an input
        switch = ON if screen else OFF
        if len(obs) != 1:
            given = {"observation": obs, "left": left, "screen": switch}
            return Decision(*self.session.run(OUTPUTS, given))
        binding, inputs, outputs = self._one
        inputs["observation"].update_inplace(obs)
        inputs["left"].update_inplace(left)
        inputs["screen"].update_inplace(switch)
        self.session.run_with_iobinding(binding)
        # copies: the next call writes into the same places
        return Decision(*[value.numpy().copy() for value in outputs])


class _OneRow(NamedTuple):
    """A decision on one row: bound, it takes a tenth less time than an ordinary call."""

    binding: Any
    inputs: dict[str, Any]
    outputs: list[Any]
