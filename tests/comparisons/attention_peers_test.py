#!/usr/bin/env python3
"""attention_peers.py on invented figures: what it prints, and when it fails."""
import json
import unittest

from script_case import ScriptCase


def row(mix, dropout, direction, kernels, us, **more):
    shape = f"{mix}, T=1024 A=16 D=64" + (f", dropout {dropout}" if dropout else "")
    operation = {"forward": "attention_fwd", "backward": "attention_bwd"}[direction]
    return {"operation": operation, "shape": shape, "kernels": kernels, "median_us": us,
            "verified": True, "per_second": 1e16 / us, "share_of_roof": 10 / us} | more


def peer(program, mix, dropout, direction, us):
    return {"program": program, "mix": mix, "dropout": dropout, "direction": direction,
            "median_us": us}


class AttentionPeers(ScriptCase):
    def run_on(self, rows, results, notes=()):
        mine, theirs = self.folder / "attention.json", self.folder / "peers.json"
        mine.write_text(json.dumps({
            "model": "large", "precision": "bf16", "device": "a GPU", "date": "2026-11-21", "peak_flops_per_second": 8e14,
            "verified": all(r["verified"] for r in rows), "notes": list(notes),
            "mixes": [{"name": "all 512", "lengths": [512, 512]},
                      {"name": "histogram", "lengths": [7, 30, 100]}],
            "operations": [{"operation": "fill", "shape": "8", "verified": True}] + rows}))
        theirs.write_text(json.dumps({"torch": "2", "cudnn": 9, "notes": ["no cuDNN"],
                                      "results": results}))
        ran = self.run_script("attention_peers.py", mine, "--peers", theirs)
        self.assertEqual(ran.stderr, "")
        lines = [[cell.strip() for cell in line.split("|")[1:-1]]
                 for line in ran.stdout.splitlines() if line.startswith("| ")]
        return lines, ran

    def test_the_fastest_of_both_sides_are_compared(self):
        lines, ran = self.run_on(
            [row("histogram", 0.1, "forward", "grouped", 200),
             row("histogram", 0.1, "forward", "persistent", 125),
             row("all 512", 0, "backward", "grouped", 400)],
            [peer("FlashAttention-2", "histogram", 0.1, "forward", 250),
             peer("cuDNN padded", "histogram", 0.1, "forward", 150),
             peer("FlashAttention-2", "all 512", 0, "backward", 800)])
        self.assertEqual(ran.returncode, 0)
        self.assertEqual(lines[0][4:8], ["Bertha, grouped (us)", "Bertha, persistent (us)",
                                         "FlashAttention-2 (us)", "cuDNN padded (us)"])
        self.assertEqual(lines[1], ["histogram", "137", "0.10", "forward", "200.0", "125.0",
                                    "250.0", "150.0", "80.0", "8.0", "1.20"])
        self.assertEqual(lines[2], ["all 512", "1024", "0.00", "backward", "400.0", "-", "800.0",
                                    "-", "25.0", "2.5", "2.00"])
        self.assertIn("no cuDNN", ran.stdout)

    def test_without_a_rival_there_is_no_quotient(self):
        lines, _ = self.run_on([row("all 512", 0, "forward", "grouped", 100)], [], ["a note"])
        self.assertEqual(lines[1][-1], "-")

    def test_a_wrong_result_is_marked_and_fails(self):
        lines, ran = self.run_on([row("all 512", 0, "forward", "grouped", 100, verified=False)], [])
        self.assertEqual(ran.returncode, 1)
        self.assertEqual(lines[1][4], "100.0 WRONG")

    def test_it_says_what_it_wants(self):
        ran = self.run_script("attention_peers.py")
        self.assertEqual(ran.returncode, 2)
        self.assertIn("name the JSON of bench kernels", ran.stderr)


if __name__ == "__main__":
    unittest.main()
