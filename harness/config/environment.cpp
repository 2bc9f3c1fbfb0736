#include "harness/config/environment.h"

#include <cstdlib>
#include <sstream>
#include <string_view>

#include "kernels/base/error.h"
#include "kernels/base/shortened.h"

namespace bertha {
namespace {

// Listed one by one: the values of unknown names, such as SLURM_JOB_TOKEN, can be secrets.
constexpr const char* kRecorded =
    "CUDA_DEVICE_MAX_CONNECTIONS CUDA_DEVICE_ORDER CUDA_LAUNCH_BLOCKING "
    "CUDA_MODULE_LOADING CUDA_MPS_ACTIVE_THREAD_PERCENTAGE CUDA_VISIBLE_DEVICES "
    "HDF5_PLUGIN_PATH HDF5_USE_FILE_LOCKING MASTER_ADDR MASTER_PORT NCCL_ALGO "
    "NCCL_BUFFSIZE NCCL_COLLNET_ENABLE NCCL_CROSS_NIC NCCL_CUMEM_ENABLE NCCL_DEBUG "
    "NCCL_HOSTID NCCL_IB_ADAPTIVE_ROUTING NCCL_IB_DISABLE NCCL_IB_GID_INDEX NCCL_IB_HCA "
    "NCCL_IB_QPS_PER_CONNECTION NCCL_IB_RETRY_CNT NCCL_IB_SL NCCL_IB_TC NCCL_IB_TIMEOUT "
    "NCCL_MAX_CTAS NCCL_MAX_NCHANNELS NCCL_MIN_CTAS NCCL_MIN_NCHANNELS NCCL_NET "
    "NCCL_NET_GDR_LEVEL NCCL_NET_PLUGIN NCCL_NTHREADS NCCL_NVLS_ENABLE NCCL_P2P_DISABLE "
    "NCCL_P2P_LEVEL NCCL_PROTO NCCL_SHM_DISABLE NCCL_SOCKET_IFNAME NCCL_TOPO_FILE "
    "OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE OMPI_COMM_WORLD_RANK "
    "OMPI_COMM_WORLD_SIZE OMPI_MCA_btl OMPI_MCA_btl_tcp_if_exclude "
    "OMPI_MCA_btl_tcp_if_include OMPI_MCA_coll OMPI_MCA_oob_tcp_if_include OMPI_MCA_osc "
    "OMPI_MCA_pml OMPI_MCA_reachable OMP_DYNAMIC OMP_NUM_THREADS OMP_PLACES OMP_PROC_BIND "
    "OPENBLAS_CORETYPE OPENBLAS_NUM_THREADS SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID "
    "SLURM_JOB_ID SLURM_JOB_NAME SLURM_JOB_NODELIST SLURM_JOB_NUM_NODES "
    "SLURM_JOB_PARTITION SLURM_NNODES SLURM_NODEID SLURM_NTASKS SLURM_NTASKS_PER_NODE "
    "SLURM_PROCID SLURM_RESTART_COUNT TMPDIR UCX_IB_GID_INDEX UCX_NET_DEVICES "
    "UCX_RNDV_SCHEME UCX_TLS WORLD_SIZE";

}  // namespace

std::vector<std::pair<std::string, std::string>> recorded_environment() {
  std::vector<std::pair<std::string, std::string>> recorded;
  std::istringstream names(kRecorded);
  for (std::string name; names >> name;) {
    if (const char* value = std::getenv(name.c_str())) recorded.emplace_back(name, value);
  }
  return recorded;
}

std::string batch_job() {
  const char* const id = std::getenv("SLURM_JOB_ID");
  const std::string_view text = id == nullptr ? "" : id;
  if (text.find_first_not_of("0123456789") != std::string_view::npos) {
    fail(ExitCode::kEnvironment, "SLURM_JOB_ID is \"", shortened(text),
         "\", want a job number; unset it outside of Slurm, or set log.run_dir");
  }
  return std::string(text);
}

}  // namespace bertha
