"""The network of a policy file as its ONNX graph, in ONNX Runtime on one thread."""

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

    def decide(self, obs: np.ndarray, left: np.ndarray, screen: bool = True) -> Decision:
        """Return the decisions for observations (N, O), both arrays float32."""
        # with an endless budget nothing exceeds a budget's tolerance, so the switch is an input
        given = {"observation": obs, "left": left, "screen": ON if screen else OFF}
        return Decision(*self.session.run(OUTPUTS, given))
