"""A ROS 2 node around a policy file. A sketch: type-checked here, not run.

    ros2 run my_package policy_node --ros-args -p policy:=/opt/policies/policy.safecritic

It subscribes to the observation (Float64MultiArray, in the order of the contract) and to the cost,
and publishes the action at the contract's period. A missing or late observation reaches the policy
as None, which its fallback answers; the monitor's view goes out as JSON once per second.
"""

import json
import time

import rclpy
from rclpy.node import Node
from std_msgs.msg import Empty, Float64, Float64MultiArray, String

from safecritic.runtime import Monitor, Threshold, load


class PolicyNode(Node):
    """Acts at a fixed rate on the newest observation, if it is new enough."""

    def __init__(self) -> None:
        super().__init__("safecritic_policy")
        path: str = self.declare_parameter("policy", "policy.safecritic").value
        most: float = self.declare_parameter("most_influence", 0.99).value
        self.policy = load(path, on_fault=self._report)
        threshold = Threshold(influence=most, cost=2.0 * self.policy.limit)
        self.monitor = Monitor(self.policy, stream=None, threshold=threshold)
        self.period: float = self.policy.contract["period"]
        self.observation: list[float] | None = None
        self.received = 0.0
        self.create_subscription(Float64MultiArray, "observation", self._observe, 1)
        self.create_subscription(Float64, "cost", self._spend, 10)
        self.create_subscription(Empty, "episode_start", self._reset, 1)
        self.actions = self.create_publisher(Float64MultiArray, "action", 1)
        self.views = self.create_publisher(String, "policy_view", 1)
        self.create_timer(self.period, self._act)
        self.create_timer(1.0, self._show)

    def _observe(self, message: Float64MultiArray) -> None:
        self.observation, self.received = list(message.data), time.monotonic()

    def _spend(self, message: Float64) -> None:
        self.monitor.spend(message.data)

    def _reset(self, message: Empty) -> None:
        self.monitor.reset()

    def _act(self) -> None:
        fresh = time.monotonic() - self.received <= self.period
        action = self.monitor(self.observation if fresh else None)
        self.actions.publish(Float64MultiArray(data=action.ravel().tolist()))

    def _show(self) -> None:
        self.views.publish(String(data=json.dumps(self.monitor.view(), allow_nan=False)))

    def _report(self, fault: str, detail: str) -> None:
        self.get_logger().warning(
            f"the fallback answers: {fault} {detail}", throttle_duration_sec=1
        )


def main() -> None:
    rclpy.init()
    node = PolicyNode()
    try:
        rclpy.spin(node)
    finally:
        node.destroy_node()
        rclpy.shutdown()


if __name__ == "__main__":
    main()
