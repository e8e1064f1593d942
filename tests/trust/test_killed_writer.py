"""A process killed inside the writing of a checkpoint, before and after each system call."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# The parent forks once for each boundary. The child counts the writer's calls of the operating
# system and ends there, in the middle of a write too, without any handler being run.
SCRIPT = """
import os, sys, json
from pathlib import Path
import numpy as np
from safecritic.run import checkpoint

CALLS = ("open", "write", "fsync", "close", "replace", "unlink", "mkdir")
real = {name: getattr(os, name) for name in CALLS}
folder = Path(sys.argv[1])


def save(step):
    checkpoint.save(folder, {"x": np.full(3_000, step, np.int64)}, {"step": step}, {"a": 1})


def killed_at(boundary, step):
    '''Write a checkpoint in a child that ends at a boundary; return its exit code.'''
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    count = 0

    def counted(name):
        def call(*values, **options):
            nonlocal count
            count += 1
            if count == boundary:
                if name == "write":  # half of it reaches the disk
                    real["write"](values[0], bytes(values[1])[: len(values[1]) // 2])
                os._exit(9)
            result = real[name](*values, **options)
            count += 1
            if count == boundary:
                os._exit(9)
            return result
        return call

    for name in CALLS:
        setattr(os, name, counted(name))
    try:
        save(step)
    finally:
        os._exit(0)


save(0)
save(1)
seen, boundary, last = [], 0, 1
while True:
    boundary += 1
    step = last + 1
    code = killed_at(boundary, step)
    for generation in ("checkpoint", "previous"):
        arrays, numbers = checkpoint.load(folder, generation)
        assert set(arrays["x"].tolist()) == {numbers["step"]}, (boundary, generation)
        if generation == "checkpoint":
            assert numbers["step"] in (last, step), (boundary, numbers)
            seen.append(numbers["step"] == step)
            last = numbers["step"]
    if code == 0:
        break
save(last + 1)  # and what the killed ones left is cleared away
print(json.dumps({"boundaries": boundary, "new": sum(seen), "left": sorted(os.listdir(folder))}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_kill_at_any_system_call_leaves_two_whole_checkpoints(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    assert result["boundaries"] >= 50
    assert 0 < result["new"] < result["boundaries"]
    assert [name[:6] for name in result["left"]] == ["arrays", "arrays", "checkp", "previo"]
