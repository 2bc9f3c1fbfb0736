"""launch/bind_rank.sh binds each rank to the NUMA node of its GPU.

usage: bind_rank_test.py SOURCE_DIR
"""

import sys
import unittest

from launch_case import LaunchCase


class BindRank(LaunchCase):
    def test_ranks_go_to_numa_nodes_in_turn(self):
        self.stand_in("nvidia-smi", "exit 9")
        self.stand_in("numactl", 'if [[ $3 == true ]]; then exit 0; fi')
        for node in (0, 1):
            folder = self.folder / f"sys/devices/system/node/node{node}"
            folder.mkdir(parents=True)
            (folder / "cpulist").write_text(f"{4 * node}-{4 * node + 3}\n")
        for rank, node in ((0, 0), (1, 0), (2, 1), (3, 1)):
            _, output = self.start(
                "bind_rank.sh", "echo", "two words", BERTHA_SYS=str(self.folder / "sys"),
                OMPI_COMM_WORLD_LOCAL_RANK=str(rank), OMPI_COMM_WORLD_LOCAL_SIZE="4",
            )
            self.assertEqual(output, f"numactl <--cpunodebind={node}> <--preferred={node}> <echo> <two words>\n")

    def test_the_numa_node_of_the_gpu_that_the_rank_takes_decides(self):
        sys_folder = self.folder / "sys"
        for node in (0, 1):
            folder = sys_folder / f"devices/system/node/node{node}"
            folder.mkdir(parents=True)
            (folder / "cpulist").write_text("0-3\n")
        # GPUs 0 and 1 at node 1 and 0, GPU 2 at a node that the system does not tell.
        for bus, node in (("0000:1b:00.0", 1), ("0000:2c:00.0", 0), ("0000:3d:00.0", -1)):
            device = sys_folder / "bus/pci/devices" / bus
            device.mkdir(parents=True)
            (device / "numa_node").write_text(f"{node}\n")
        self.stand_in("numactl", 'if [[ $3 == true ]]; then exit 0; fi')
        all_gpus = """case "$*" in
            *query-gpu=index*) printf '0\\n1\\n2\\n' ;;
            *--id=0) echo 00000000:1B:00.0 ;;
            *--id=1 | *--id=GPU-4d1c-77) echo 00000000:2C:00.0 ;;
            *--id=2) echo 00000000:3D:00.0 ;;
            *) echo 'No devices were found' ;;
        esac; exit 0"""
        one_gpu = all_gpus.replace(r"0\n1\n2\n", r"0\n")  # as in a cgroup of --gpus-per-task
        failing = "echo 'NVIDIA-SMI has failed because it could not talk to the driver'; exit 9"
        for smi, visible, rank, node in (
                (all_gpus, None, 0, 1), (all_gpus, None, 1, 0), (all_gpus, None, 2, None),
                (all_gpus, None, 3, None),  # more ranks than GPUs, which bertha refuses
                (all_gpus, "1", 2, 0), (all_gpus, "1,0", 1, 1), (all_gpus, "GPU-4d1c-77", 0, 0),
                (all_gpus, "1,-1,0", 2, 0), (all_gpus, "MIG-9a", 1, None), (all_gpus, "", 1, 0),  # no GPU: nodes in turn
                (one_gpu, None, 1, 1), (one_gpu, "0", 2, 1), (failing, None, 0, 0)):
            self.stand_in("nvidia-smi", smi)
            variables = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
            _, output = self.start("bind_rank.sh", "echo", "x", BERTHA_SYS=str(sys_folder),
                                   SLURM_LOCALID=str(rank), SLURM_STEP_TASKS_PER_NODE="8(x2)", **variables)
            bound = f"numactl <--cpunodebind={node}> <--preferred={node}> <echo> <x>\n"
            self.assertEqual(output, "x\n" if node is None else bound, (smi, visible, rank))

    def test_one_numa_node_needs_no_binding(self):
        self.stand_in("numactl")
        (self.folder / "sys").mkdir()
        self.assertEqual(self.start("bind_rank.sh", "echo", "x", BERTHA_SYS=str(self.folder / "sys")), (0, "x\n"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
