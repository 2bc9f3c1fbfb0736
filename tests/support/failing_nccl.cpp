// Calls of NCCL that fail, for failing_calls.cpp: those by which Bertha connects GPUs and sums over
// them.

#include <nccl.h>

#include "tests/support/failing_calls.h"

namespace {

template <class Function, class... Arguments>
ncclResult_t call(const char* name, Function* declared, Arguments... arguments) {
  if (must_fail("nccl", name)) return ncclSystemError;
  return real(name, declared)(arguments...);
}

}  // namespace

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return call("ncclGetUniqueId", &ncclGetUniqueId, id);
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return call("ncclCommInitRankConfig", &ncclCommInitRankConfig, comm, ranks, id, rank, config);
}
ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclAllReduce", &ncclAllReduce, from, to, count, type, operation, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclReduceScatter", &ncclReduceScatter, from, to, count, type, operation, comm,
              stream);
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return call("ncclAllGather", &ncclAllGather, from, to, count, type, comm, stream);
}
}
