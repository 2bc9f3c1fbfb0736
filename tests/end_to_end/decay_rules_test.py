"""Each optimizer.decay_rule updates the parameters of the published code that it is named after.

LAMB moves a parameter that has a trust ratio by exactly the learning rate times its norm, whatever
the gradient: the weights before and after an update show where the parameters were cut.
"""

import math
import pathlib
import struct
import sys

from support import ROUND_F32, EndToEnd, main
from safetensors_file import tensor_bytes

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "comparisons"))
from published_parameters import RULES, published_parameters

RATE = 0.1
STEPS = 2  # biases are zero, and without a ratio, before the first


def weights(folder, step):
    path = folder / "ckpt" / f"step_{step:08d}" / "model.safetensors"
    return {name: struct.unpack(f"<{len(data) // 4}f", data)
            for name, data in tensor_bytes(path).items()}


def norm(values):
    return math.sqrt(math.fsum(v * v for v in values))


class DecayRules(EndToEnd):
    def relative_updates(self, rule, ranks=0):
        """{parameter: (|change| / |before| of the last update, decayed)} of a published code."""
        folder = self.new_folder(rule)
        self.train(folder, ranks=ranks, optimizer__decay_rule=rule, train__max_steps=STEPS,
                   optimizer__base_learning_rate=RATE, optimizer__schedule_steps=10**9,
                   optimizer__bucket_mib=0.01, checkpoint__every_steps=1, checkpoint__keep=STEPS)
        before, after = weights(folder, STEPS - 1), weights(folder, STEPS)
        found = {}
        for name, (tensors, decayed) in published_parameters(rule, before).items():
            old = [v for tensor in tensors for v in before[tensor]]
            new = [v for tensor in tensors for v in after[tensor]]
            change = norm(b - a for a, b in zip(old, new))
            found[name] = (change / norm(old), decayed)
        return found

    def check(self, rule, ranks=0):
        # The new weight is rounded once, the step size and the update a few times.
        tolerance = 8 * ROUND_F32 / RATE
        for name, (relative, decayed) in self.relative_updates(rule, ranks).items():
            error = abs(relative / RATE - 1)
            if decayed:
                self.assertLess(error, tolerance, f"{rule}: {name} has no ratio of its own")
            else:
                self.assertGreater(error, 100 * tolerance, f"{rule}: {name} has a ratio")

    def test_each_rule_has_the_parameters_of_its_published_code(self):
        for rule in RULES:
            with self.subTest(rule=rule):
                self.check(rule)

    def test_parameters_that_are_cut_over_ranks_keep_their_ratios(self):
        self.check("reference", ranks=2)
        self.check("nvidia_fmha", ranks=2)


if __name__ == "__main__":
    main()
